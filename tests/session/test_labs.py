"""The labs, run with the toy model: what they count is worked out by hand here, and is what the docs show.

Prompts and answers have lengths of their own, so every model gives the same counts. No time is judged.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvscope.cli.lab_report import as_text
from kvscope.engine.model.toy import toy_tokenizer
from kvscope.errors import UsageError
from kvscope.replay import open_recording
from kvscope.session.labs import LABS, lab_named
from kvscope.session.labs.figures import STEPS, read_recording
from kvscope.session.labs.lab import Expectation, arrivals
from kvscope.session.labs.run import LabRun, RunOfVariant, run_lab
from kvscope.session.options import EngineOptions
from kvscope.session.prompt_texts import prompt_tokens

Runs = Callable[[str], LabRun]

DOCS = (Path(__file__).parents[2] / "docs" / "LABS.md").read_text()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Returns a function that runs a lab by name, once however often it is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")

        @functools.cache
        def run(name: str) -> LabRun:
            return run_lab(lab_named(name), EngineOptions(model="toy"), tmp_path_factory.mktemp(name), 1)

        yield run


def counted(run: LabRun, figure: str) -> list[float | None]:
    """Returns a figure of the only round, variant by variant."""
    return [run.values(variant.name, figure)[0] for variant in run.lab.variants]


def test_a_static_batch_waits_for_its_slowest_member(runs: Runs) -> None:
    """Answers of 36, 6, 12, 6 | 6, 12, 36, 6 | 12, 6 tokens: static batches of four take 36 + 36 + 12 steps.

    Continuously, request 7 has a seat when it arrives (step 15) and is the last to end, after step 50. Statically,
    requests 5 to 10, of steps 5, 10 … 30, are admitted at 36 (four of them) and 72.
    """
    run = runs("static-batching")
    assert counted(run, "num_steps") == [36 + 36 + 12, 51]
    assert counted(run, "mean_batch_size") == [138 / 84, 138 / 51]
    waits = sorted([0, 0, 0, 0, 36 - 5, 36 - 10, 36 - 15, 36 - 20, 72 - 25, 72 - 30])
    assert counted(run, "queue_p50_steps") == [(waits[4] + waits[5]) / 2, 0]


def test_exclusive_steps_pass_decoders_over_while_prompts_are_computed(runs: Runs) -> None:
    """Four prompts of 250 tokens are 1,000, four steps of 256: a token of step 9 is followed by one of step 14."""
    run = runs("exclusive-batching")
    assert counted(run, "decoder_longest_gap_steps") == [1 + 4, 1]
    assert counted(run, "num_steps") == [40 + 4, 40]
    assert counted(run, "newcomer_ttft_steps") == [4, 4]


def test_a_budget_cuts_a_prompt_into_chunks(runs: Runs) -> None:
    """Three decoders leave all but three tokens of the budget to the 480 of the prompt."""
    run = runs("chunked-prefill")
    assert counted(run, "newcomer_ttft_steps") == [1, *(-(-480 // (budget - 3)) for budget in (256, 128, 64, 32))]
    assert counted(run, "largest_step_tokens") == [480 + 3, 256, 128, 64, 32]


def test_a_batch_of_n_takes_an_nth_of_the_steps(runs: Runs) -> None:
    run = runs("batch-size")
    assert counted(run, "num_steps") == [16 * 8 / size for size in (1, 2, 4, 8, 16)]
    assert counted(run, "mean_batch_size") == [1, 2, 4, 8, 16]


def test_without_caching_nothing_hits_and_every_prompt_token_is_computed(runs: Runs) -> None:
    """Six prompts of 320 shared and 16 own tokens; the first of six tokens comes with the prompt."""
    run = runs("prefix-caching")
    assert counted(run, "num_hit_tokens") == [0, 5 * 320]
    assert counted(run, "num_prefill_tokens") == [6 * 336, 336 + 5 * 16]
    assert counted(run, "num_decode_tokens") == [6 * 5, 6 * 5]


def test_blocks_waste_their_ends_and_hit_only_when_they_are_full(runs: Runs) -> None:
    """120 of 140 prompt tokens are shared; request r has 140 + k tokens after step 4r + k, and is gone after k = 18."""
    run = runs("block-size")
    sizes = (8, 16, 32, 64)
    assert counted(run, "num_hit_tokens") == [7 * (120 // size * size) for size in sizes]
    assert counted(run, "num_prefill_tokens") == [8 * 140 - 7 * (120 // size * size) for size in sizes]
    found = [slots_by_hand(size) for size in sizes]
    assert counted(run, "unused_slot_share") == [unused / held for unused, held, _ in found]
    assert counted(run, "peak_held_blocks") == [peak for _, _, peak in found]


def slots_by_hand(size: int) -> tuple[int, int, int]:
    """Returns unused and held slots over all steps, and the most blocks at once, for blocks of this size."""
    num_unused = num_held = peak = 0
    shared = 120 // size
    for step in range(4 * 7 + 19):
        lengths = [140 + step - 4 * r for r in range(8) if 0 <= step - 4 * r <= 18]
        blocks = [-(-length // size) for length in lengths]
        num_blocks = shared + sum(count - shared for count in blocks)
        num_unused += sum(count * size - length for count, length in zip(blocks, lengths, strict=True))
        num_held += num_blocks * size
        peak = max(peak, num_blocks)
    return num_unused, num_held, peak


def test_without_a_watermark_the_pool_is_filled_and_growth_preempts(runs: Runs) -> None:
    """A prompt has three blocks of 32, and grows by one with its 49th and 65th token: at steps 9 and 25.

    No watermark: ten are let in. Step 9: ten need a block, two are free, two victims of three blocks give six. Step 25:
    eight need one, none is free, two victims of four give eight. Three blocks left free (10 %): nine get in, one victim
    at step 9. Eight (25 %): eight get in, none. Sixteen (50 %): five get in, and need 25 blocks in the end.
    """
    run = runs("watermark")
    first, second = [(9, "req-10"), (9, "req-9")], [(25, "req-8"), (25, "req-7")]
    assert preemptions(run, "watermark-0") == [*first, *second]
    assert preemptions(run, "watermark-10%") == [first[1], *second]
    assert preemptions(run, "watermark-25%") == second
    assert preemptions(run, "watermark-50%") == []
    assert counted(run, "num_preemptions") == [4, 3, 2, 0]
    assert counted(run, "num_recomputed_tokens")[-1] == 0


def test_a_reservation_spares_prompts_not_answers(runs: Runs) -> None:
    """Two prompts of ten blocks and their answers leave ten of 32 blocks to the third in either way.

    It has its first token in step 7 (480 of 64 a step) and then needs an eleventh block, while none is free.
    """
    run = runs("reservation")
    assert [preemptions(run, variant.name)[0] for variant in run.lab.variants] == [(8, "req-3"), (8, "req-3")]
    in_prompt, later = counted(run, "num_preemptions_in_prompt"), counted(run, "num_preemptions_after_first_token")
    assert [a + b for a, b in zip(in_prompt, later, strict=True) if a is not None and b is not None] == counted(
        run, "num_preemptions"
    )
    outcomes = {tested.expectation.figure: tested.outcome for tested in run.tested()}
    assert outcomes == {
        "num_preemptions": "borne out",
        "num_preemptions_in_prompt": "borne out",
        "num_preemptions_after_first_token": "not borne out",
        "num_recomputed_tokens": "borne out",
    }


def preemptions(run: LabRun, variant: str) -> list[tuple[int, str]]:
    """Returns `(step, victim)` in order, from the recording."""
    return read_recording(run.runs[variant][0].recording).run.preemptions


@pytest.mark.parametrize("name", [lab.name for lab in LABS])
def test_the_docs_have_the_counts_that_every_model_gives(name: str, runs: Runs) -> None:
    """The docs' tables are of the default model; the toy counts the same."""
    text = "\n".join(as_text(runs(name), None))
    counts = re.search(r"^Counts, exact\n.*?\n\n", text, re.MULTILINE | re.DOTALL)
    assert counts is not None
    assert counts[0] in DOCS
    claim = text[text.index("claim") : text.index("\nrun ")]
    assert claim in DOCS


@pytest.mark.parametrize("name", [lab.name for lab in LABS])
def test_what_to_look_at_is_there(name: str, runs: Runs) -> None:
    """Steps and requests that a lab sends its reader to exist, and every expectation names a figure and variants."""
    run = runs(name)
    with open_recording(run.runs[run.lab.look_at][0].recording) as timeline:
        places = [place for look in run.lab.look for place in re.findall(r":([\w-]+)", look.keys)]
        steps = [int(place) for place in places if place.isdigit()]
        assert all(step <= timeline.last_step for step in steps)
        assert set(places) - set(map(str, steps)) <= set(timeline.request_ids())
    for expectation in run.lab.expectations:
        assert expectation.figure in {figure.key for figure in run.lab.figures}
        assert {expectation.left, expectation.right} <= {variant.name for variant in run.lab.variants}


def test_an_expectation_is_borne_out_only_where_it_held_in_every_round() -> None:
    lab = dataclasses.replace(
        lab_named("static-batching"),
        figures=(STEPS,),
        expectations=(
            Expectation(sentence="", figure="num_steps", left="a", right="b"),
            Expectation(sentence="", figure="num_steps", left="b", right="a"),
            Expectation(sentence="", figure="num_steps", left="a", right="c"),
            Expectation(sentence="", figure="num_steps", left="a", right="a", relation="="),
            Expectation(sentence="", figure="num_steps", left="a", right="d"),
        ),
    )
    values = {"a": (1.0, 2.0, 3.0), "b": (2.0, 3.0, 4.0), "c": (2.0, 2.0, 4.0), "d": (None, None, None)}
    runs = {
        name: [RunOfVariant(Path(name), {"num_steps": value}) for value in rounds] for name, rounds in values.items()
    }
    run = LabRun(lab, "toy", "cpu", 1, runs)
    assert [(tested.num_held, tested.outcome) for tested in run.tested()] == [
        (3, "borne out"),
        (0, "not borne out"),
        (2, "undecided"),
        (3, "borne out"),
        (0, "not borne out"),
    ]
    assert [run.median(name, "num_steps") for name in "abcd"] == [2, 3, 2, None]


def test_prompts_have_their_lengths_and_share_what_is_shared() -> None:
    asked = (
        *arrivals("a", (1, 1), num_own_tokens=9, num_shared_tokens=30),
        *arrivals("b", (1,) * 9, num_own_tokens=700),
    )
    prompts = prompt_tokens(toy_tokenizer(), asked)
    assert list(map(len, prompts)) == [39, 39, *[700] * 9]
    assert prompts[0][:30] == prompts[1][:30]
    assert len({tuple(prompt[:38]) for prompt in prompts}) == 11
    assert len({tuple(prompt[:4]) for prompt in prompts[2:]}) == 9


def test_an_unknown_lab_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError) as raised:
        lab_named("watermarks")
    assert raised.value.message == "there is no lab 'watermarks': did you mean watermark? `kvscope lab` lists them"
