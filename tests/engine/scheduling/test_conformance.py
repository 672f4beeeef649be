"""Every step of the golden runs of vLLM 0.32.0's scheduler, field by field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvscope.engine.scheduling.scenario import parse_scenario
from tests.builders import CheckedRun
from tests.golden import golden_names, golden_runs


@pytest.mark.parametrize(("kind", "name"), golden_names())
def test_every_step_equals_the_golden_run(kind: str, name: str) -> None:
    golden = golden_runs(kind)[name]
    trace = golden["trace"]
    run = CheckedRun(parse_scenario(golden))
    outcome = run.run()
    for record, step in zip(run.dump(), trace["steps"], strict=True):
        assert as_json(record) == step
        # Two dicts are equal in any order; here the order is a decision.
        assert list(record["num_scheduled_tokens"]) == list(step["num_scheduled_tokens"])
    assert (outcome.num_steps, outcome.stuck, outcome.hit_max_steps) == (
        trace["num_steps"],
        None,
        trace["hit_max_steps"],
    )
    assert {request.request_id: request.output_token_ids for request in outcome.requests} == trace["output_token_ids"]
    settings = run.scheduler.config.as_settings()
    assert settings == settings | trace["config"]
    assert run.scheduler.config.watermark_blocks == trace["watermark_blocks"]


def as_json(record: dict[str, Any]) -> Any:
    return json.loads(json.dumps(record))
