"""The true answers of public reports against the JSON of `kvscope why`, figure for figure."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from kvscope.analysis.why import explain, overview
from kvscope.cli.why import as_json
from tests.cases import cases, recorded_case

Json = dict[str, Any]


@cache
def why(case: str, request_id: str, step: int | None = None) -> Json:
    """Returns what `kvscope why CASE.db REQUEST --json` prints, decoded."""
    found: Json = json.loads(as_json(explain(recorded_case(case), request_id, step)))
    return found


@cache
def whole_run(case: str) -> Json:
    """Returns what `kvscope why CASE.db --json` prints, decoded."""
    found: Json = json.loads(as_json(overview(recorded_case(case))))
    return found


def _step_of_wait(case: str, request_id: str, step: int) -> Json:
    (found,) = (
        row for wait in why(case, request_id)["waiting"]["waits"] for row in wait["steps"] if row["step"] == step
    )
    assert isinstance(found, dict)
    return found


def _picked(record: Json, keys: Any) -> Json:
    return {key: record[key] for key in keys}


# --- c09: a preemption cycle ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_id", ["c5", "x"])
def test_c09_cycles(request_id: str) -> None:
    truth = cases()["c09_preempt_cycle"]["answer"]["requests"][request_id]
    answer = why("c09_preempt_cycle", request_id)
    assert answer["request"]["preemptions"] == truth["preemptions"]
    assert answer["request"]["resumes"] == truth["resumes"]
    assert answer["preempted"]["resume_preempt_cycles"] == truth["resume_preempt_cycles"]
    rows = answer["preempted"]["resumptions"]
    assert [_picked(row, truth["per_resume"][0]) for row in rows] == truth["per_resume"]
    assert answer["preempted"]["recomputed_tokens"] == truth["recomputed"]


def test_c09_the_run_as_a_whole() -> None:
    truth = cases()["c09_preempt_cycle"]["answer"]
    run = whole_run("c09_preempt_cycle")
    assert run["most_preempted"] == truth["most_preempted"]
    assert run["recomputed_tokens"] == truth["recomputed_total"]
    assert sorted(run["never_preempted"]) == sorted(truth["never_preempted"])
    rows = {row["request_id"]: row for row in run["requests"]}
    for request_id, told in truth["requests"].items():
        assert rows[request_id]["resume_preempt_cycles"] == told["resume_preempt_cycles"]
        assert rows[request_id]["recomputed_tokens"] == told["recomputed"]


def test_c09_who_waits_behind_them() -> None:
    for request_id, truth in cases()["c09_preempt_cycle"]["answer"]["waits_behind_them"].items():
        request = why("c09_preempt_cycle", request_id)["request"]
        assert (request["arrival_step"], request["first_admitted_step"]) == (truth["arrived"], truth["first_admitted"])
        at_13 = _step_of_wait("c09_preempt_cycle", request_id, 13)
        assert (at_13["need"], at_13["free"]) == (truth["need_at_13"], truth["free_at_13"])


def test_c09_a_step_that_preempts_admits_nobody_so_nobody_was_held_up_in_it() -> None:
    """late would have fitted in step 12 too, but for the preemption of c5."""
    wait = why("c09_preempt_cycle", "c5")["waiting"]["waits"][1]
    assert [(row["step"], row["stop"], row["fit_alone"]) for row in wait["steps"]] == [
        (12, "preempted", ["late"]),
        (13, "full_isl", ["late"]),
    ]
    assert wait["fitted_behind"] == {"late": [13]}


def test_c09_one_repeat_is_no_cycle() -> None:
    assert [why("c09_preempt_cycle", key)["preempted"]["is_in_a_cycle"] for key in ("c5", "x")] == [True, False]


# --- c10: priority inversion ------------------------------------------------------------------------------------------


def test_c10_which_limit_and_who_of_lower_priority_runs() -> None:
    truth = cases()["c10_priority_inversion"]["answer"]
    for place, told in truth["at"].items():
        step, request_id = place.split(":")
        row = _step_of_wait("c10_priority_inversion", request_id, int(step))
        assert {
            "stop": row["stop"],
            "running": row["running"],
            "running_with_lower_priority": row["running_with_lower_priority"],
            "running_with_equal_priority": row["running_with_equal_priority"],
            "ahead_in_waiting": row["ahead"],
            "need": row["need"],
            "free": row["free"],
        } == told


def test_c10_how_long_and_who_let_them_in() -> None:
    truth = cases()["c10_priority_inversion"]["answer"]
    run = {row["request_id"]: row for row in whole_run("c10_priority_inversion")["requests"]}
    for key, mine in (
        ("priorities", "priority"),
        ("first_admitted", "first_admitted_step"),
        ("waited_steps", "waited_steps"),
        ("finished", "finished_step"),
    ):
        assert {request_id: row[mine] for request_id, row in run.items()} == truth[key]
    for request_id, words in truth["let_in_by"].items():
        (wait,) = why("c10_priority_inversion", request_id)["waiting"]["waits"]
        let_in = wait["let_in_by"]
        assert f"{' and '.join(let_in['finished'])} finished at step {let_in['step']}" == words
    (high,) = why("c10_priority_inversion", "HIGH")["waiting"]["waits"]
    assert high["lower_priority_ran"]["steps"] == truth["inversion_steps_of_HIGH"]
    assert high["lower_priority_ran"]["sampled_tokens"] == truth["tokens_sampled_by_lower_while_HIGH_waited"]
    assert whole_run("c10_priority_inversion")["num_preemptions"] == truth["preemptions"]


# --- c12: a long prefill among decoders -------------------------------------------------------------------------------


def test_c12_the_prefill_and_its_share() -> None:
    truth = cases()["c12_long_prefill"]["answer"]
    chunks = why("c12_long_prefill", "long")["slow"]["first_token"]["chunks"]
    assert [chunk["step"] for chunk in chunks] == truth["prefill_steps"]
    assert [chunk["tokens"] for chunk in chunks] == truth["prefill_chunks"]
    assert {str(chunk["step"]): chunk["step_total_tokens"] for chunk in chunks} == truth["step_total_tokens"]
    assert {str(chunk["step"]): chunk["share_pct"] for chunk in chunks} == truth["long_share_pct"]
    assert why("c12_long_prefill", "long")["request"]["first_token_step"] == truth["long_first_token_step"]
    assert why("c12_long_prefill", "long")["num_steps"] == truth["steps"]


def test_c12_whom_it_shared_steps_with_and_whom_it_kept_waiting() -> None:
    truth = cases()["c12_long_prefill"]["answer"]
    shared = {}
    for request_id in truth["steps_shared_with_long_prefill"]:
        rows = why("c12_long_prefill", request_id)["slow"]["shared_prefill"]
        (shared[request_id],) = (row["steps"] for row in rows if row["request_id"] == "long")
    assert shared == truth["steps_shared_with_long_prefill"]
    requests = [row["request_id"] for row in whole_run("c12_long_prefill")["requests"]]
    slow = {request_id: why("c12_long_prefill", request_id)["slow"] for request_id in requests}
    assert {request_id: slow[request_id]["steps_skipped"] for request_id in requests} == truth["decoder_steps_skipped"]
    waited = {key: answer["waiting_for_budget"] for key, answer in slow.items() if answer["waiting_for_budget"]}
    assert waited == truth["waiting_for_budget"]
    beside = {row["request_id"]: row for row in slow["long"]["beside_prefill"]}
    assert {key: row["shared_steps"] for key, row in beside.items()} == shared
    kept = {key: row["steps_without_budget"] for key, row in beside.items() if row["steps_without_budget"]}
    assert kept == truth["waiting_for_budget"]
    run = {row["request_id"]: row for row in whole_run("c12_long_prefill")["requests"]}
    assert {key: row["first_admitted_step"] for key, row in run.items()} == truth["first_admitted"]
    assert {key: row["finished_step"] for key, row in run.items()} == truth["finished"]


# --- c13: own hits after preemption against others' -------------------------------------------------------------------


def test_c13_whose_blocks_were_hit() -> None:
    truth = cases()["c13_self_vs_cross"]["answer"]
    told = []
    for row in whole_run("c13_self_vs_cross")["requests"]:
        for admission in why("c13_self_vs_cross", row["request_id"])["missed"]["admissions"]:
            told.append(
                {
                    "step": admission["step"],
                    "id": row["request_id"],
                    "kind": admission["kind"],
                    "hit_tokens": admission["hit_tokens"],
                    "hit_blocks": admission["hit_blocks"],
                    "publishers": admission["publishers"],
                    "self_tokens": admission["own_hit_tokens"],
                    "cross_tokens": admission["others_hit_tokens"],
                }
            )
            assert admission["hits_hold_its_tokens"]
    assert sorted(told, key=lambda row: (row["step"], row["id"])) == sorted(
        truth["admissions"], key=lambda row: (row["step"], row["id"])
    )


def test_c13_the_sums_and_the_engines_own_counters() -> None:
    truth = cases()["c13_self_vs_cross"]["answer"]
    run = whole_run("c13_self_vs_cross")
    assert _picked(run["hits"], ("self_hit_tokens", "cross_hit_tokens", "total_hit_tokens")) == _picked(
        truth, ("self_hit_tokens", "cross_hit_tokens", "total_hit_tokens")
    )
    assert run["hits"]["engine_counters"] == truth["engine_counters"]
    assert run["hits"]["cross_tokens_inside_preempted_hits"] == truth["cross_tokens_inside_preempted_hits"]
    assert {row["request_id"]: row["recomputed_tokens"] for row in run["requests"]} == truth["recomputed"]
    told = [{"step": step, "id": row["request_id"]} for row in run["requests"] for step in row["preemptions"]]
    assert told == truth["preemptions"]


# --- c14: a prefix that is shorter than a block -----------------------------------------------------------------------

C14_REASONS = {
    "shared prefix shorter than one block": "shorter_than_a_block",
    "all shared blocks hit": "all_shared_hit",
    "whole shared blocks hit; remainder shorter than a block": "rest_shorter_than_a_block",
    "cap num_tokens-1: last block must be recomputed": "last_token_must_be_computed",
    "nothing shared": "nothing_shared",
}


def test_c14_why_not_more_was_hit() -> None:
    for truth in cases()["c14_short_prefix"]["answer"]["requests"]:
        answer = why("c14_short_prefix", truth["id"])
        (admission,) = answer["missed"]["admissions"]
        with_a = [match["shared_tokens"] for match in admission["matches"] if match["request_id"] == "a"]
        assert {
            "id": answer["request"]["request_id"],
            "prompt_tokens": answer["request"]["prompt_tokens"],
            "shared_tokens_with_a": sum(with_a),
            "hit_tokens": admission["hit_tokens"],
            "cap": admission["cap"],
            "why": admission["reason"],
            "hit_zero_and_correct": admission["hit_zero_and_correct"],
        } == {**truth, "why": C14_REASONS[truth["why"]]}


def test_c14_who_made_the_duplicates() -> None:
    truth = cases()["c14_short_prefix"]["answer"]
    made = {}
    for row in whole_run("c14_short_prefix")["requests"]:
        for duplicate in why("c14_short_prefix", row["request_id"])["missed"]["duplicates"]:
            made[f"[{duplicate['duplicate_of']}, {duplicate['block_id']}]"] = (
                f"{row['request_id']} (block {duplicate['block_index']} recomputed into {duplicate['block_id']})"
            )
    assert made == truth["duplicates_made_by"]


# --- c17: a heavy head ------------------------------------------------------------------------------------------------


def test_c17_need_against_free_and_who_holds_it() -> None:
    truth = cases()["c17_heavy_head"]["answer"]
    wait = why("c17_heavy_head", "heavy")["waiting"]["waits"][0]
    keys = ("step", "need", "free", "missing", "held_by", "needs_behind", "fit_alone")
    assert [_picked(row, keys) for row in wait["steps"]] == truth["steps"]


def test_c17_can_it_ever_fit_and_who_let_it_in() -> None:
    truth = cases()["c17_heavy_head"]["answer"]
    answer = why("c17_heavy_head", "heavy")
    capacity = answer["waiting"]["instant"]["capacity"]
    assert (capacity["can_ever_fit"], capacity["pool"]) == (truth["can_ever_fit"], truth["pool"])
    wait = answer["waiting"]["waits"][0]
    assert wait["ended_step"] == truth["admitted_step"]
    let_in = wait["let_in_by"]
    assert (let_in["finished"], let_in["step"]) == (
        [truth["finish_that_let_it_in"]["id"]],
        truth["finish_that_let_it_in"]["step"],
    )
    assert let_in["free_before_admission"] == truth["free_before_admission"]
    for request_id in ("l0", "l1", "l2"):
        steps = [row["step"] for row in wait["steps"] if request_id in row["fit_alone"]]
        assert steps == truth[f"steps_{request_id}_would_have_fitted"] == wait["fitted_behind"][request_id]
    run = {row["request_id"]: row for row in whole_run("c17_heavy_head")["requests"]}
    assert {key: row["first_admitted_step"] for key, row in run.items()} == truth["first_admitted"]
    assert {key: row["recomputed_tokens"] for key, row in run.items()} == truth["recomputed"]
    assert [{"step": step, "id": key} for key, row in run.items() for step in row["preemptions"]] == truth[
        "later_preemption"
    ]
