"""Every step of the golden runs of vLLM 0.32.0's scheduler, field by field: from the events, and from a recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.analysis.check import check_recording
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.replay.dump import StepRecord, dump_steps
from kvscope.replay.replay import open_recording
from kvscope.session.simulation import simulate
from tests.builders import CheckedRun
from tests.golden import golden_names, golden_runs


@pytest.mark.parametrize(("kind", "name"), golden_names())
def test_every_step_equals_the_golden_run(kind: str, name: str) -> None:
    golden = golden_runs(kind)[name]
    trace = golden["trace"]
    run = CheckedRun(parse_scenario(golden))
    outcome = run.run()
    assert_steps_equal(run.dump(), trace["steps"])
    assert (outcome.num_steps, outcome.stuck) == (trace["num_steps"], None)
    assert outcome.hit_max_steps == trace["hit_max_steps"]
    assert {r.request_id: r.output_token_ids for r in outcome.requests} == trace["output_token_ids"]
    settings = run.scheduler.config.as_settings()
    assert settings == settings | trace["config"]
    assert run.scheduler.config.watermark_blocks == trace["watermark_blocks"]


@pytest.mark.parametrize(("kind", "name"), golden_names())
def test_every_step_of_the_recording_equals_the_golden_run(kind: str, name: str, tmp_path: Path) -> None:
    golden = golden_runs(kind)[name]
    path = tmp_path / "run.db"
    simulate(parse_scenario(golden), recording=path)
    with open_recording(path) as recording:
        assert list(check_recording(recording)) == []
        steps = recording.events(recording.first_step, recording.last_step)
        assert_steps_equal(list(dump_steps(steps)), golden["trace"]["steps"])


def assert_steps_equal(records: list[StepRecord], golden_steps: list[StepRecord]) -> None:
    for record, golden_step in zip(records, golden_steps, strict=True):
        assert json.loads(json.dumps(record)) == golden_step
        # Two dicts are equal in any order; here the order is a decision.
        assert list(record["num_scheduled_tokens"]) == list(golden_step["num_scheduled_tokens"])
