"""Why each waiting request waits: the recorded verdict of the head, and the rules' judgement of those behind it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from kvscope.analysis.verdicts import judged, verdict_of, verdicts, would_fit
from kvscope.engine.scheduling.scenario import parse_scenario
from tests.analysis.reading import read
from tests.builders import CheckedRun, scenario
from tests.golden import golden_runs


def _rows(run: CheckedRun, step: int) -> list[tuple[str, str, int]]:
    """Returns id, words and steps waited."""
    timeline = read(run)
    return [(row.request_id, row.text, row.num_waited_steps) for row in verdicts(timeline, timeline.at(step))]


def test_the_figures_of_a_heavy_head_and_of_all_behind_it() -> None:
    """The question of a public report, answered from a trace of vLLM: who behind would have fitted?"""
    case = json.loads((Path(__file__).parent / "data" / "heavy_head.json").read_text())
    run = CheckedRun(parse_scenario(case["workload"]))
    run.run()
    timeline = read(run)
    for truth in case["steps"]:
        head, *behind = verdicts(timeline, timeline.at(truth["step"]))
        assert (head.request_id, head.is_refused, head.reason) == ("heavy", True, "full_isl")
        assert (head.need_blocks, head.num_free_blocks) == (truth["need"], truth["free"])
        assert {row.request_id: row.need_blocks for row in behind} == truth["needs_behind"]
        assert [row.request_id for row in behind if row.fits] == truth["fit_alone"]


@pytest.mark.parametrize("kind", ["scenarios", "random"])
def test_the_judgement_of_every_refused_head_is_vllms_own(kind: str) -> None:
    """Judged from the end of the step, blind to what was recorded of the refusal: hits, their cost, blocks, reason."""
    num_judged: Counter[str] = Counter()
    for golden in golden_runs(kind).values():
        run = CheckedRun(parse_scenario(golden))
        run.run()
        timeline = read(run)
        for step, trace in enumerate(golden["trace"]["steps"]):
            for failed in trace["alloc_fail"]:
                if failed["phase"] == "waiting" and failed["id"] in (moment := timeline.at(step)).state.waiting:
                    judgement = judged(timeline, moment, failed["id"])
                    assert judgement is not None
                    assert judgement.failed is not None
                    need = failed["need_full" if failed["reason"].startswith("full") else "need_step"]
                    assert (judgement.failed.reason, judgement.failed.need) == (failed["reason"], need)
                    assert (judgement.failed.have, judgement.failed.watermark_blocks) == (
                        failed["free"],
                        failed["watermark"],
                    )
                    num_hit_tokens = len(judgement.hit_block_ids) * run.scenario.config.block_size
                    assert [failed["id"], num_hit_tokens] in trace["lookups"]
                    num_judged[failed["reason"]] += 1
    assert num_judged.total() > 20


def test_the_head_names_the_test_and_those_behind_what_they_need() -> None:
    run = (
        scenario(blocks=5, budget=16)
        .request("a", "abcdefgh", reply="xyz")
        .request("b", "ijklm", reply="uvw")
        .request("c", "no", at=1)
        .run(3)
    )
    assert _rows(run, 1) == [("b", "preempted in this step", 0), ("c", "↳ need 1 fits", 0)]
    assert _rows(run, 2) == [("b", "need 2 > 1 free", 1), ("c", "↳ need 1 fits", 1)]
    timeline = read(run)
    row = verdict_of(timeline, timeline.at(1), "b")
    assert row is not None
    assert (row.was_preempted, row.is_preempted_now, row.fits, row.position) == (True, True, False, 0)
    assert verdict_of(timeline, timeline.at(1), "a") is None


def test_the_watermark_stands_beside_the_need() -> None:
    run = scenario(blocks=11, watermark=0.1).request("a", "abcdefghijklmnopqrstuvw", reply="xyz")
    run.request("b", "0123456789ABCDEF", at=1).request("c", "0123456789AB", at=1).request("d", "0123456789ABC", at=1)
    assert [words for _, words, _ in _rows(run.run(2), 1)] == ["need 4+1wm > 4 free", "↳ need 3 fits", "↳ need 4"]


def test_a_hit_in_use_is_free_and_one_in_the_free_queue_costs_a_block() -> None:
    """b shares two blocks with a, which runs; c shares one with e, which has ended: both are behind a head too big."""
    run = (
        scenario(blocks=11)
        .request("e", "EEEE1")
        .request("a", "AAAABBBBx", reply="12345", at=1)
        .request("big", "0123456789012345678901234567890123", at=2)
        .request("b", "AAAABBBByyyy", at=2)
        .request("c", "EEEEzzzz", at=2)
        .run(3)
    )
    assert [words for _, words, _ in _rows(run, 2)] == ["need 9 > 7 free", "↳ need 1 fits", "↳ need 2 fits"]
    timeline = read(run)
    hits = [judged(timeline, timeline.at(2), request_id) for request_id in ("b", "c")]
    assert [(hit.hit_block_ids, hit.num_free_hit_blocks) for hit in hits if hit is not None] == [((2, 3), 0), ((1,), 1)]


def test_a_prompt_may_hold_what_another_request_was_answered() -> None:
    """a was fed abcd efgh i; b continues it. c parts from it in the answer."""
    run = (
        scenario(blocks=9)
        .request("a", "abcd", reply="efghij")
        .request("r", "RRRRSSSSTTTTUUUUVVV", reply="12345", at=6)
        .request("big", "0123456789012345678901234567890", at=6)
        .request("b", "abcdefghij?", at=6)
        .request("c", "abcdefGhij?", at=6)
        .run(7)
    )
    timeline = read(run)
    hits = [judged(timeline, timeline.at(6), request_id) for request_id in ("b", "c")]
    assert [hit.hit_block_ids for hit in hits if hit is not None] == [(1, 2), (1,)]


def test_what_stops_the_head_by_number_stops_all_behind_it() -> None:
    run = scenario(seqs=1).request("a", "abc", reply="xyz").request("b", "de").request("c", "f").run(1)
    assert _rows(run, 0) == [("b", "seqs 1/1", 0), ("c", "↳ seqs 1/1", 0)]
    run = scenario(budget=8).request("a", "abcdefghij").request("b", "de").request("c", "f").run(1)
    assert _rows(run, 0) == [("b", "budget used up", 0), ("c", "↳ budget used up", 0)]


def test_unchunked_prompts_wait_for_a_budget_of_their_size() -> None:
    run = scenario(budget=16, enable_chunked_prefill=False).request("a", "abcdefghij").request("b", "0123456789")
    assert _rows(run.request("c", "fgh").run(1), 0) == [
        ("b", "chunking off: 10 > 6 left", 0),
        ("c", "↳ need 1 fits", 0),
    ]


def test_only_as_many_rows_as_are_asked_for_and_the_count_of_those_that_fit() -> None:
    run = scenario(blocks=5).request("x", "abcdefghijklmnopqrst")
    for index in range(6):
        run.request(f"r{index}", "0123456789ABCDEFGHI"[: 3 * index + 3])
    timeline = read(run.run(1))
    moment = timeline.at(0)
    assert [row.text for row in verdicts(timeline, moment, first=1, count=2)] == ["↳ need 1 fits", "↳ need 2 fits"]
    fits = would_fit(timeline, moment)
    assert fits.request_ids == ("r0", "r1", "r2", "r3", "r4")  # r5 has 18 tokens: 5 blocks, of which there are 4
    assert (fits.num_waiting, fits.num_judged) == (7, 7)
