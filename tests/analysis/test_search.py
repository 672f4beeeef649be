"""Searching: every kind of thing, in the order of steps, in any script, and what is refused."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from kvscope import events as ev
from kvscope.analysis.search import Hit, SearchError, parse_query, search
from kvscope.analysis.search.run import STRETCH_STEPS
from kvscope.analysis.search.texts import find_all
from kvscope.analysis.searched import Searched
from kvscope.replay import MemoryTimeline
from kvscope.replay.timeline import Timeline
from tests.analysis.reading import read, read_steps
from tests.analysis.runs import preempting, sharing
from tests.builders import scenario
from tests.tui import scenes


def hits(timeline: Timeline, text: str) -> list[Hit]:
    found = search(timeline, parse_query(text), 0, timeline.last_step)
    return [hit for hit in found if isinstance(hit, Hit)]


def told(timeline: Timeline, text: str) -> list[tuple[int, str, str | None, str]]:
    return [(hit.step, hit.kind, hit.request_id, hit.text) for hit in hits(timeline, text)]


def test_a_word_is_found_in_ids_prompts_and_outputs_in_the_order_of_steps() -> None:
    run = (
        scenario(max_model_len=256)
        .request("paris-1", "Where is Paris?", reply="In France.")
        .request("req-2", "Which city?", at=1, reply="It is paris now.")
        .run()
    )
    assert told(read(run), "paris") == [
        (0, "request", "paris-1", "paris-1"),
        (0, "prompt", "paris-1", "Where is Paris?"),
        (11, "output", "req-2", "It is paris now."),  # the step that completed the word: its first token came in step 1
    ]
    assert [hit.kind for hit in hits(read(run), "Paris")] == ["prompt"]  # a large letter finds only itself
    assert [hit.request_id for hit in hits(read(run), "id:req")] == ["req-2"]
    assert [hit.kind for hit in hits(read(run), "output:paris")] == ["output"]


def test_chinese_and_emoji_are_found_though_a_character_is_several_tokens() -> None:
    """Each token is a byte here: no token alone is a character."""
    steps: list[tuple[int, list[ev.Event]]] = []
    answer = "首都是巴黎。🗼".encode()
    settings = scenario(max_model_len=256).start().scheduler.config.as_settings()
    configured = ev.EngineConfigured(
        model="m", device="cpu", dtype="f", settings=settings, num_gpu_blocks=32, block_size=4, watermark_blocks=0
    )
    texts = ev.TokenTextRecorded(token_ids=tuple(range(256)), token_bytes=tuple(bytes([i]) for i in range(256)))
    arrived = ev.RequestArrived(
        request_id="请求-1",
        prompt_token_ids=(1,),
        max_tokens=99,
        arrival_time=0.0,
        queue_position=0,
        prompt="法国的首都?",
    )
    for step, byte in enumerate(answer):
        first: list[ev.Event] = [configured, texts, arrived] if step == 0 else []
        sampled = ev.TokensSampled(request_ids=("请求-1",), token_ids=(byte,))
        steps.append((step, [*first, ev.StepStarted(step=step, token_budget=8), sampled, ev.StepFinished()]))
    timeline = read_steps(steps)
    assert told(timeline, "首都") == [
        (0, "prompt", "请求-1", "法国的首都?"),
        (5, "output", "请求-1", "首都是巴黎。🗼"),
    ]
    assert told(timeline, "巴黎。🗼") == [(len(answer) - 1, "output", "请求-1", "首都是巴黎。🗼")]
    assert [(hit.step, hit.match) for hit in hits(timeline, "/巴.。/")] == [(17, "巴黎。")]
    assert [hit.kind for hit in hits(timeline, "请求")] == ["request"]


def test_a_word_across_the_border_of_two_stretches_is_found_once() -> None:
    reply = "x" * (STRETCH_STEPS - 2) + "border" + "y" * 10
    run = scenario(blocks=200, max_model_len=600).request("a", "p", reply=reply).run(1_000)
    found = hits(read(run), "border")
    assert [(hit.step, hit.match) for hit in found] == [(STRETCH_STEPS + 3, "border")]


def test_numbers_are_tokens_in_prompts_and_outputs() -> None:
    run = scenario().request("a", "abca", reply="xa").run()
    assert told(read(run), f"token:{ord('a')}") == [
        (0, "token", "a", "97 “a” in the prompt, 2 times"),
        (1, "token", "a", "97 “a” generated"),
    ]
    assert [hit.kind for hit in hits(read(run), "97")] == ["token", "token"]


def test_a_block_is_found_wherever_something_happens_to_it() -> None:
    """b hits block 1 of a, and gives it back before a does; 2 has the same story, 3 is a's alone."""
    assert told(read(sharing()), "b1") == [
        (0, "block", "a", "1 allocated"),
        (0, "block", "a", "1 published"),
        (1, "block", "b", "1 hit"),
        (2, "block", "a", "1 released"),
        (3, "block", "b", "1 released"),
    ]
    assert [hit.block_id for hit in hits(read(sharing()), "block:3")] == [3, 3]


def test_a_hash_is_found_by_its_first_digits() -> None:
    run = sharing()
    published = run.all_events(ev.BlockCached)[0][1]
    digits = f"{published.block_hashes[0]:016x}"
    for query in (f"#{digits[:6]}", f"hash:0x{digits[:6].upper()}"):
        (hit,) = hits(read(run), query)
        assert (hit.step, hit.block_id) == (0, published.block_ids[0])
        assert hit.text == f"{digits} published in block {published.block_ids[0]}"
    assert [hit.kind for hit in hits(read(run), digits)] == ["hash"]


def test_kinds_of_events_and_reasons() -> None:
    timeline = read(preempting())
    assert [(hit.step, hit.kind, hit.match, hit.request_id) for hit in hits(timeline, "preempted")] == [
        (1, "event", "RequestPreempted", "b"),
        (1, "reason", "preempted", "b"),
    ]
    assert [hit.step for hit in hits(timeline, "event:StepStarted")] == [0, 1, 2, 3, 4]
    assert hits(timeline, "StepStarted") == []  # every step has one: only where events are asked for
    assert told(timeline, "reason:full_isl") == [(2, "reason", "b", "refused: full_isl")]
    assert [hit.request_id for hit in hits(timeline, "reason:length")] == ["a", "c", "b"]


def test_a_refusal_that_lasts_is_one_hit() -> None:
    run = scenario(blocks=5, budget=16).request("a", "abcdefgh", reply="uvwxyz").request("b", "ijklmnopq", at=1).run()
    blocked = [step for step, event in run.all_events(ev.RequestBlocked) if event.request_id == "b"]
    assert len(blocked) > 2
    assert [hit.step for hit in hits(read(run), "reason:full_isl")] == [blocked[0]]


def test_the_error_of_a_failed_step_is_found() -> None:
    (hit,) = hits(scenes.failed_step(), "out of memory")
    assert (hit.step, hit.text) == (2, "failed: RuntimeError: CUDA error: out of memory [0]")


def test_hostile_text_is_shown_not_obeyed() -> None:
    (hit,) = hits(scenes.hostile_text(), "prompt:not markup")
    assert hit.text == "[bold red]not markup[/] ␛[31mred␛[0m ␛]0;title␇⇥tab⏎line $HOME"


def test_a_search_says_how_far_it_is_and_can_be_left() -> None:
    run = scenario(blocks=300, max_model_len=900).request("a", "p", reply="z" * 850).run(1_000)
    timeline = read(run)
    found = search(timeline, parse_query("nothing"), 0, timeline.last_step)
    assert next(found) == Searched(399)
    assert list(found) == [Searched(799), Searched(849)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  ", "nothing to look for: type one of req-7  some words  b57  token:1234  #a1b2c3"),
        ("/a(b/", "column 3: this is no regular expression: missing ), unterminated subpattern"),
        ("text:/(a+)+x/", "column 11: a repetition or a choice within a repetition could run for ever"),
        ("/(a|aa)+/", "column 8: a repetition or a choice within a repetition could run for ever"),
        ("/.*a.*b.*c/", "column 9: more than two open repetitions could run for ever"),
        ("/a{0,99}b{0,99}c{0,99}/", "column 22: more than two open repetitions could run for ever"),
        ("/(a+){30}/", "column 6: a repetition or a choice within a repetition could run for ever"),
        ("/" + "a?" * 17 + "/", "column 35: more than two open repetitions could run for ever"),
        ("token:x", "x is no token: it is a number, like token:57"),
        ("#xyz", "xyz is no hash: 2 to 16 hexadecimal digits, like #a1b2c3"),
        ("q" * 501, "a search has at most 500 characters, this one 501"),
    ],
)
def test_what_cannot_be_looked_for_is_said(text: str, message: str) -> None:
    with pytest.raises(SearchError) as raised:
        parse_query(text)
    assert raised.value.message.startswith(message)


@pytest.mark.parametrize(
    "text", ["/[a+]+/", r"/\(a+\)+/", "/(ab)+c*/", "/colou?rs?/", "/(?:a|b)c/", "/a|b|c+/", "/a.*?b.*/"]
)
def test_harmless_regular_expressions_pass(text: str) -> None:
    assert parse_query(text).pattern is not None


@pytest.mark.parametrize("place", [0, 150, 195, 199, 200, 250, 297, 299, 300, 394])
def test_a_regular_expression_sees_pieces_but_finds_what_lies_across_them_once(place: int) -> None:
    text = "x" * place + "border" + "x" * (900 - place) + "border"
    pattern = parse_query("/bor.er/").pattern
    assert pattern is not None
    found = [begin + match.start() for match, begin in find_all(pattern, text, is_literal=False)]
    assert found == [place, 906]


def test_a_regular_expression_never_sees_a_long_text_at_once() -> None:
    """`a.*a.*z` over thousands of a would hold the interpreter for minutes."""
    pattern = parse_query("/a.*a.*/").pattern
    assert pattern is not None
    seen = {len(match.string) for match, _ in find_all(pattern, "a" * 5_000, is_literal=False)}
    assert max(seen) == 300


def test_hits_are_values() -> None:
    """A list that is searched twice drops what it has already."""
    timeline: MemoryTimeline = read(sharing())
    assert hits(timeline, "b1") == hits(timeline, "b1")
    assert len({dataclasses.astuple(hit) for hit in hits(timeline, "b1")}) == 5


@pytest.mark.parametrize("seed", range(12))
def test_text_that_cannot_hold_the_words_is_passed_over_and_nothing_is_missed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words lie across tokens, stretches and pauses of a request; each is found where it is when all is decoded."""
    random = Random(seed)
    pieces = [b"w", b"i", b"wi", b"nd", b"ind", b"WIND", b"xwin", b"do", b"n", *[b"q%d" % n for n in range(60)]]
    pieces += [b"", "é".encode()[:1], "é".encode()[1:], "窗".encode()]
    settings = scenario(max_model_len=256).start().scheduler.config.as_settings()
    configured = ev.EngineConfigured(
        model="m", device="cpu", dtype="f", settings=settings, num_gpu_blocks=32, block_size=4, watermark_blocks=0
    )
    texts = ev.TokenTextRecorded(token_ids=tuple(range(len(pieces))), token_bytes=tuple(pieces))
    timeline = MemoryTimeline()
    lively, calm = [*range(9), *range(60, len(pieces))], [*[7] * 40, *range(9, 69)]
    for step in range(240):
        first: list[ev.Event] = [configured, texts] if step == 0 else []
        ids = tuple(name for name in "abc" if random.random() < 0.8) if step % 60 < 50 else ("a",)
        tokens = tuple(random.choice(lively if step // 20 % 3 == 0 else calm) for _ in ids)
        sampled = [ev.TokensSampled(request_ids=ids, token_ids=tokens)] if ids else []
        timeline.write_step(step, [*first, ev.StepStarted(step=step, token_budget=8), *sampled, ev.StepFinished()])
    monkeypatch.setattr("kvscope.analysis.search.run.STRETCH_STEPS", 20)
    quick = [hits(timeline, words) for words in ("wind", "window", "WIN", "windw")]
    monkeypatch.setattr("kvscope.analysis.search.anchors._MIN_CHARACTERS", 1_000)
    assert quick == [hits(timeline, words) for words in ("wind", "window", "WIN", "windw")]
    assert quick[0]
