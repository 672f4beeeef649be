"""The state between the events of a step is the fold of the events up to there, in any order of asking."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope import events as ev
from kvscope.replay import open_recording
from kvscope.replay.inside_step import InsideStep, inside
from kvscope.state import EngineState, StateError
from tests.builders import scenario
from tests.recording.runs import BUSY_RUNS, golden_steps, record
from tests.replay.test_seek import assert_same, folded


@pytest.mark.parametrize("name", BUSY_RUNS[:2])
def test_behind_every_event_the_state_is_the_fold_of_those_before(tmp_path: Path, name: str) -> None:
    steps = golden_steps(name)
    with open_recording(record(tmp_path / "run.db", steps)) as replay:
        moments = replay.moments()
        for step, events in steps:
            whole = replay.at(step)
            walk = inside(moments, whole, replay.first_step)
            expected = EngineState() if step == 0 else folded(name)[step - 1].copy()
            expected.begin_step(step)
            for number, event in enumerate(events, 1):
                expected.apply(event)
                moment = walk.after(number)
                assert_same(moment.state, expected)
                assert (moment.step, len(moment.events), type(moment.events[-1])) == (step, number, type(event))
            assert_same(whole.state, folded(name)[step])  # the walk left it alone


def test_it_goes_back_and_forth() -> None:
    run = scenario().request("a", "sysprompt", reply="xyz").request("b", "syspromp?!", at=1, reply="uvw").run()
    state = EngineState()
    state.apply_step(*run.sink.steps[0])
    walk = InsideStep(state, *run.sink.steps[1])
    numbers = range(len(walk.events) + 1)
    tables = [_tables(walk.after(number).state) for number in numbers]
    assert tables[0] == {"a": [1, 2, 3]}
    assert tables[-1] == {"a": [1, 2, 3], "b": [1, 2, 4]}
    for first in numbers:
        for second in numbers:
            walk.after(first)
            assert _tables(walk.after(second).state) == tables[second]
    assert _tables(state) == {"a": [1, 2, 3]}


def _tables(state: EngineState) -> dict[str, list[int]]:
    return {request_id: list(request.block_ids) for request_id, request in state.requests.items()}


def test_an_event_that_contradicts_the_state_is_an_error_when_it_is_reached() -> None:
    events = (ev.StepStarted(step=0, token_budget=8), ev.BlockAllocated(request_id="a", block_ids=(1,)))
    broken = InsideStep(EngineState(), 0, events)
    assert broken.after(1).state.token_budget == 8
    with pytest.raises(StateError):
        broken.after(2)
    assert broken.after(1).state.token_budget == 8
