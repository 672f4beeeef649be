"""`kvscope simulate`: a scenario file in; a summary, a recording or step records out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine
from tests.golden import golden_runs


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


def write_scenario(kvscope: CommandLine, name: str, **changes: Any) -> dict[str, Any]:
    """Writes a golden scenario to `scenario.json`; `changes` go into every request, None removes a field."""
    golden = golden_runs("scenarios")[name]
    requests = [
        {key: value for key, value in (request | changes).items() if value is not None}
        for request in golden["workload"]["requests"]
    ]
    data = {"workload": golden["workload"] | {"requests": requests}, "trace": golden["trace"]}
    (kvscope.folder / "scenario.json").write_text(json.dumps(data))
    trace: dict[str, Any] = golden["trace"]
    return trace


def test_the_summary_says_what_became_of_each_request(kvscope: CommandLine) -> None:
    write_scenario(kvscope, "s15_shared_system_prompt")
    outcome = kvscope("simulate", "scenario.json")
    assert (outcome.exit_code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[1:] == [
        "request  prompt  hit  output  preempted  ended",
        "a            15    0       6          0  length",
        "b            17   12       3          0  length",
        "c            13   12       4          0  length",
        "d            14   12       2          0  length",
        "14 steps, 6 of them empty; 34 tokens computed, 0 preemptions",
    ]


def test_dump_prints_the_golden_steps(kvscope: CommandLine) -> None:
    trace = write_scenario(kvscope, "s15_shared_system_prompt")
    outcome = kvscope("simulate", "scenario.json", "--dump", "--check")
    assert [json.loads(line) for line in outcome.out.splitlines()] == trace["steps"]
    assert outcome.err == "every invariant holds in every step\n"


def test_json_is_one_object(kvscope: CommandLine) -> None:
    trace = write_scenario(kvscope, "s15_shared_system_prompt")
    outcome = kvscope("simulate", "scenario.json", "--json", "--record", "s15.db", "--max-steps", "2")
    summary = json.loads(outcome.out)
    assert (summary["num_steps"], summary["hit_max_steps"], summary["stuck"]) == (2, True, None)
    assert summary["requests"][0] == {
        "id": "a",
        "num_prompt_tokens": 15,
        "num_hit_tokens": 0,
        "num_preemptions": 0,
        "output_token_ids": trace["output_token_ids"]["a"][:2],
        "status": "RUNNING",
    }
    assert outcome.err.splitlines() == [
        "stopped after 2 steps, before the end; --max-steps allows more",
        f"2 steps recorded in {kvscope.folder / 's15.db'}",
    ]


def test_a_recorded_run_passes_the_check(kvscope: CommandLine) -> None:
    write_scenario(kvscope, "s09_priority_preempt_scheduled")
    assert kvscope("simulate", "scenario.json", "--record", "run.db").exit_code == 0
    outcome = kvscope("check", "run.db")
    assert (outcome.exit_code, outcome.err) == (0, "")
    assert outcome.out == f"run.db: every invariant holds in all {len(golden_steps())} steps\n"


def golden_steps() -> list[Any]:
    steps: list[Any] = golden_runs("scenarios")["s09_priority_preempt_scheduled"]["trace"]["steps"]
    return steps


def test_a_deadlock_names_the_request_and_why(kvscope: CommandLine) -> None:
    write_scenario(kvscope, "s28_longer_than_pool_deadlock", cancel_step=None)
    outcome = kvscope("simulate", "scenario.json")
    assert outcome.exit_code == 1
    assert outcome.err == (
        "stuck at step 6 (deadlock): huge: its 50 tokens fill 13 blocks of 4, the pool has 9; admission takes 11 free "
        "blocks, 7 of them for its own hits, 9 are free, and nothing runs that could free more\n"
    )


def test_a_livelock_ends_and_is_named(kvscope: CommandLine) -> None:
    write_scenario(kvscope, "s28b_longer_than_pool_livelock", cancel_step=None)
    outcome = kvscope("simulate", "scenario.json", "--json")
    assert outcome.exit_code == 1
    stuck = json.loads(outcome.out)["stuck"]
    assert (stuck["kind"], stuck["request_id"], stuck["step"]) == ("livelock", "huge", 10)


def test_a_recording_that_is_there_stays_unless_it_may_be_replaced(kvscope: CommandLine) -> None:
    write_scenario(kvscope, "s01_plain_decode")
    (kvscope.folder / "old.db").write_text("precious")
    outcome = kvscope("simulate", "scenario.json", "--record", "old.db")
    assert (outcome.exit_code, (kvscope.folder / "old.db").read_text()) == (2, "precious")
    assert kvscope("simulate", "scenario.json", "--record", "old.db", "--force").exit_code == 0
    assert kvscope("check", "old.db").exit_code == 0


def test_a_mistyped_key_is_one_line_with_the_nearest_name(kvscope: CommandLine) -> None:
    write_scenario(kvscope, "s01_plain_decode", prioritty=1)
    outcome = kvscope("simulate", "scenario.json")
    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err == (
        "kvscope: scenario.json: request 'a': there is no key 'prioritty': did you mean 'priority'?\n"
    )


def test_dump_and_json_do_not_mix(kvscope: CommandLine) -> None:
    write_scenario(kvscope, "s01_plain_decode")
    outcome = kvscope("simulate", "scenario.json", "--dump", "--json")
    assert (outcome.exit_code, outcome.err) == (
        2,
        "kvscope: --dump and --json both print to standard output: choose one\n",
    )
