"""A block's life, told line by line."""

from __future__ import annotations

from kvscope import events as ev
from kvscope.analysis.biography import Biographer
from kvscope.analysis.happenings import Happening
from kvscope.analysis.spans import Entity
from tests.analysis.reading import read, read_steps
from tests.builders import CheckedRun, scenario


def life() -> CheckedRun:
    """Four blocks. a computes block 1 and publishes it; b hits it while a runs, and again a third request when both
    are gone; then d needs all four blocks and evicts it."""
    return (
        scenario(blocks=5, budget=16, max_model_len=16)
        .request("a", "abcdX", reply="12")
        .request("b", "abcdY", reply="12", at=1)
        .request("c", "abcdZ", reply="1", at=4)
        .request("d", "0123456789abcde", reply="1", at=6)
        .run()
    )


def told(run: CheckedRun, block_id: int) -> list[str]:
    timeline = read(run)
    found = Biographer(block_id).read(timeline, 0, timeline.last_step)
    return [f"{part.step} {part.sentence}" for part in found if isinstance(part, Happening)]


def test_a_block_from_its_first_allocation_to_its_next_life() -> None:
    run = life()
    digits = f"{run.all_events(ev.BlockCached)[0][1].block_hashes[0]:016x}"[:8]
    assert told(run, 1)[:8] == [
        "0 + taken for a",
        f"0 ░ published for prefix hits: block 0 of a, hash {digits}",
        "1 ● hit by b, now shared by 2, with a",
        "1 − released by a, still held by b",
        "2 − released by b: free, at the tail of the free queue, still cached",
        "4 ● hit by c, out of the free queue",
        "4 − released by c: free, at the tail of the free queue, still cached",
        f"6 ◆ evicted: d needed a free block, hash {digits} lost",
    ]
    assert told(run, 1)[8] == "6 + taken again for d"


def test_every_request_it_names_is_a_jump() -> None:
    timeline = read(life())
    (hit,) = [
        part
        for part in Biographer(1).read(timeline, 1, 1)
        if isinstance(part, Happening) and part.sentence.tone == "hit"
    ]
    assert hit.sentence.entities == [Entity("request", "b")]  # begun in step 1, it does not know that a held the block


def test_a_block_that_was_never_used_has_no_biography() -> None:
    assert told(scenario().request("a", "abcdX", reply="1").run(), 30) == []


def test_a_block_that_repeats_another_ones_tokens_says_so() -> None:
    """A prompt's last token is never hit, so b computes its only block again."""
    run = scenario(blocks=9).request("a", "abcd", reply="1").request("b", "abcd", reply="1").run()
    digits = f"{run.all_events(ev.BlockCached)[1][1].block_hashes[0]:016x}"[:8]
    assert told(run, 2)[:2] == [
        "0 + taken for b",
        f"0 ░ published for prefix hits: block 0 of b, hash {digits}, the same tokens as in block 1",
    ]


def test_what_a_preemption_takes_back_is_told() -> None:
    taken_back = ev.BlockUncached(request_id="a", block_ids=(1,), reason="preempted")
    steps = life().sink.steps
    timeline = read_steps([*steps[:1], (1, [ev.StepStarted(step=1, token_budget=1), taken_back, ev.StepFinished()])])
    (told_once,) = [part for part in Biographer(1).read(timeline, 1, 1) if isinstance(part, Happening)]
    assert str(told_once.sentence) == "░ taken back from the prefix cache: its request was preempted"
