"""A condition sees the same in the engine's process as in the recording: every field, after every step."""

from __future__ import annotations

import pytest

from kvscope.analysis.conditions import StateLook, StepLook
from kvscope.analysis.conditions.fields import FIELDS
from kvscope.analysis.conditions.values import StepValues, Value
from kvscope.engine.llm_engine import StepReport
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.engine.scheduling.scripted_run import ScriptedRun
from kvscope.session.engine_look import EngineLooks
from kvscope.state import EngineState
from tests.builders import ListSink
from tests.golden import golden_runs
from tests.recording.runs import BUSY_RUNS

Worth = dict[tuple[str, str], Value]


def worth(look: StepLook) -> Worth:
    """Returns every field's value, those of requests for each request."""
    values = StepValues(look)
    found: Worth = {("", name): values.of_step(name) for name, field in FIELDS.items() if field.scope != "request"}
    for request in look.requests():
        assert look.request(request.request_id) is not None
        found |= {(request.request_id, name): values.of_request(name, request) for name in FIELDS}
    return found


@pytest.mark.parametrize("name", BUSY_RUNS)
def test_every_field_is_worth_the_same_in_the_engine_and_in_the_recording(name: str) -> None:
    sink, state = ListSink(), EngineState()
    run = ScriptedRun(parse_scenario(golden_runs("random")[name]), sink)
    looks = EngineLooks(run.scheduler)
    ended: set[str] = set()
    num_compared = 0
    while not run.is_done and run.next_step < run.scenario.max_steps:
        run.run_step()
        step, events = sink.steps[-1]
        state.apply_step(step, events)
        new = [request for request in run._arrived.values() if request.status.is_finished]
        new = [request for request in new if request.request_id not in ended]
        ended |= {request.request_id for request in new}
        report = StepReport(step, 0, events, None, new)
        live, folded = worth(looks.after(report)), worth(StateLook(step, state, events))
        assert live == folded
        num_compared += len(live)
        tokens = state.step_tokens
        assert [folded["", f"{kind}_tokens"] for kind in ("prefill", "decode", "draft")] == [
            tokens.prefill,
            tokens.decode,
            tokens.draft,
        ]
    assert num_compared > 1_000
