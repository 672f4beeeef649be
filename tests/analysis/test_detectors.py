"""Each detector on a run small enough to be worked out by hand, and silence where nothing is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from kvscope import events as ev
from kvscope.analysis.detectors import Finding, find_all
from kvscope.analysis.finding import FindingKind
from kvscope.analysis.stack_distance import LostHits, lost_hits
from tests.analysis.reading import read, read_steps
from tests.builders import CheckedRun, ScenarioBuilder, scenario


def _found(run: CheckedRun, kind: str) -> list[Finding]:
    return [finding for finding in find_all(read(run)) if finding.kind == kind]


def _only(run: CheckedRun, kind: str) -> Finding:
    (finding,) = _found(run, kind)
    return finding


def test_the_page_of_findings_has_every_kind_in_their_order() -> None:
    page = (Path(__file__).parents[2] / "docs" / "FINDINGS.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(get_args(FindingKind))


def test_a_run_without_trouble_has_no_findings() -> None:
    run = scenario(blocks=64).request("a", "aaaaaa", reply="xyz").request("b", "bbbbbb", reply="xyz", at=1).run()
    assert find_all(read(run)) == []


def test_a_failed_step_is_the_first_finding() -> None:
    """b never fits; the forward pass of step 1 raised."""
    steps = list(scenario(blocks=5).request("a", "a", reply="xy").request("big", "b" * 30).run().sink.steps)[:2]
    step, events = steps[1]
    steps[1] = (step, [*events, ev.StepFailed(phase="forward", error_type="RuntimeError", message="no\nluck")])
    failed, unfit = find_all(read_steps(steps))
    assert (failed.kind, unfit.kind) == ("failed_step", "never_fits")
    assert (failed.first_step, failed.last_step, failed.num_steps, failed.request_ids) == (1, 1, 1, ())
    assert failed.figures == {"phase": "forward", "error_type": "RuntimeError", "message": "no\nluck"}
    assert str(failed.sentence) == "✖ The engine stopped at step 1: forward raised RuntimeError: no⏎luck"


def test_never_fits_names_who_waits_behind() -> None:
    finding = _only(scenario(blocks=5).request("big", "b" * 30).request("small", "s").run(), "never_fits")
    assert (finding.request_ids, finding.num_steps) == (("big", "small"), 1)
    assert finding.figures == {"need": 8, "have": 4, "unit": "blocks", "behind": ["small"]}
    assert str(finding.sentence) == (
        "✗ big can never be admitted: it needs 8 blocks, the pool has 4; 1 request behind it"
    )


def test_a_prompt_longer_than_its_pool_that_is_computed_in_vain_never_fits() -> None:
    """Without the reservation it is admitted, preempts itself, and is admitted again."""
    run = scenario(blocks=5, budget=8, scheduler_reserve_full_isl=False).request("big", "b" * 30).run(20)
    assert _only(run, "never_fits").request_ids == ("big",)


def test_a_prompt_longer_than_the_budget_that_may_not_be_cut_never_fits() -> None:
    """Engines refuse such settings; a recording can hold them all the same."""
    run = scenario(blocks=64, budget=8, enable_chunked_prefill=False).request("long", "l" * 20).run()
    assert _only(run, "never_fits").figures == {"need": 20, "have": 8, "unit": "tokens", "behind": []}


def test_head_of_line_blocking_names_who_would_have_fitted() -> None:
    run = (
        scenario(blocks=9)
        .request("runner", "r" * 14, reply="x" * 4)
        .request("heavy", "h" * 20, at=1)
        .request("light", "l" * 4, at=2)
        .run()
    )
    finding = _only(run, "head_of_line_blocking")  # runner ends at step 3
    assert finding.request_ids == ("heavy", "light")
    assert finding.figures == {
        "reason": "full_isl",
        "steps": [2, 3],
        "most_that_fitted": 1,
        "fitted": {"light": [2, 3]},
    }


def test_a_preemption_cycle_has_its_count_and_cost() -> None:
    builder = scenario(blocks=7, enable_prefix_caching=False).request("a", "aaa", reply="x" * 12)
    builder.request("b", "bbb", reply="y" * 5).request("c", "ccccc", reply="z" * 10)
    run = builder.run()
    preempted = [step for step, request_id in _preemptions(run) if request_id == "c"]
    assert preempted == [4, 9]
    finding = _only(run, "preemption_cycle")
    assert finding.request_ids == ("c",)
    assert finding.figures["preemptions"] == preempted
    assert finding.figures["cycles"] == 1


def _preemptions(run: CheckedRun) -> list[tuple[int, str]]:
    return [(step, request_id) for step, record in enumerate(run.dump()) for request_id in record["preempted"]]


def test_priority_inversion_counts_steps_and_tokens() -> None:
    run = (
        scenario(seqs=1, policy="priority")
        .request("low", "llll", reply="x" * 5, priority=5)
        .request("high", "hhhh", at=2, priority=0)
        .run()
    )
    finding = _only(run, "priority_inversion")
    assert finding.request_ids == ("high", "low")
    assert finding.figures == {"steps": [2, 3, 4], "running_with_lower_priority": ["low"], "tokens": 3}


def test_priorities_mean_nothing_under_first_come_first_served() -> None:
    run = scenario(seqs=1).request("low", "llll", reply="x" * 5, priority=5).request("high", "hhhh", at=2).run()
    assert _found(run, "priority_inversion") == []


def test_a_running_request_without_tokens_starves() -> None:
    """Two decoders take the whole budget of two tokens."""
    run = (
        scenario(budget=2, seqs=2, max_model_len=64)
        .request("a", "a", reply="x" * 8)
        .request("b", "bbb", reply="y" * 2)
        .run()
    )
    assert _found(run, "starvation") == []  # both get a token a step
    builder = scenario(budget=8, seqs=3).request("first", "f" * 40, reply="x").request("second", "s" * 3, reply="y" * 8)
    assert _found(builder.run(), "starvation") == []  # it waits in the queue, and nobody overtakes it


def test_empty_steps_say_what_the_head_needed() -> None:
    run = scenario(blocks=5).request("big", "b" * 30, cancel_step=4).request("small", "s", at=2).run()
    finding = _only(run, "empty_steps_while_waiting")
    assert (finding.first_step, finding.last_step, finding.num_steps) == (0, 3, 4)
    assert finding.figures == {"reason": "full_isl", "need": 8, "have": 4, "num_waiting": 2}


def test_a_long_prefill_among_decoders_has_steps_chunks_and_shares() -> None:
    run = scenario(blocks=64, budget=8).request("decoder", "dddd", reply="x" * 8).request("long", "l" * 20, at=2).run()
    finding = _only(run, "long_prefill_among_decoders")
    assert finding.request_ids == ("long", "decoder")
    assert finding.figures == {
        "steps": [2, 3, 4],
        "tokens": [7, 7, 6],
        "share_pct": [87.5, 87.5, 85.7],
        "decoders": ["decoder"],
        "forward_ns": 0,
    }


# --- hits lost to eviction ------------------------------------------------------------------------------------------


def _chat(blocks: int) -> ScenarioBuilder:
    return (
        scenario(blocks=blocks)
        .request("first", "system: be kind; user: a", reply="xyz")
        .request("filler", "0123456789" * 4, reply="zz", at=4)
        .request("again", "system: be kind; user: b", reply="xyz", at=8)
    )


def _hit_tokens(run: CheckedRun) -> int:
    return sum(sum(record["prefix_hit_tokens"].values()) for record in run.dump())


def test_lost_hits_and_how_many_more_blocks_would_have_kept_them() -> None:
    """The run is repeated with the pool that the detector asks for, and with one block less."""
    figures = _only(_chat(12).run(), "hits_lost_to_eviction").figures
    assert (figures["lost_tokens"], figures["hit_tokens"], figures["queried_tokens"]) == (20, 0, 88)
    more = figures["more_blocks_to_keep_all"]
    assert _hit_tokens(_chat(12 + more).run()) == 20
    assert _hit_tokens(_chat(12 + more - 1).run()) < 20


def test_nothing_is_lost_where_nothing_was_evicted() -> None:
    assert _found(_chat(64).run(), "hits_lost_to_eviction") == []
    assert _hit_tokens(_chat(64).run()) == 20


def test_a_miss_of_text_that_never_was_there_is_not_lost() -> None:
    builder: Any = scenario(blocks=12).request("a", "a" * 30).request("b", "b" * 30, at=2).request("c", "c" * 30, at=4)
    assert lost_hits(read(builder.run())) == LostHits(block_size=4, pool=11, num_queried_tokens=90)
