"""`n` and `N` in the places of one request and one block: what happened to it, and nothing of others."""

from __future__ import annotations

from pathlib import Path

from kvscope import events as ev
from kvscope.replay import open_recording
from kvscope.tui.app import KvscopeApp
from kvscope.tui.screens.block import BlockScreen
from kvscope.tui.screens.request import RequestScreen
from tests.tui.test_places_keys import press

STORM = Path(__file__).parents[2] / "recordings" / "preemption_storm.db"
TURNS = (ev.RequestAdmitted, ev.RequestResumed, ev.RequestPreempted, ev.RequestFinished)


def over_file(step: int) -> KvscopeApp:
    return KvscopeApp(open_recording(STORM), open_timeline=open_recording, initial_step=step)


async def test_in_a_requests_place_n_goes_to_its_own_events() -> None:
    with open_recording(STORM) as timeline:
        turns = [
            step
            for step, events in timeline.events(0, timeline.last_step)
            if any(isinstance(event, TURNS) and event.request_id == "req-10" for event in events)
        ]
    behind = [step for step in turns if step > 201]
    assert len(behind) >= 2
    app = over_file(201)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "colon", *"req-10", "enter", "enter")
        assert isinstance(app.screen, RequestScreen)
        steps = []
        for _ in behind:
            await press(pilot, "n")
            steps.append(app.model.step)
        assert (steps, app.model.selected_id) == (behind, "req-10")
        await press(pilot, "n")
        assert app.model.step == behind[-1]
        told = [str(toast.message) for toast in app._notifications]
        assert told == [f"nothing happens to req-10 after step {behind[-1]}"]
        await press(pilot, "N")
        assert app.model.step == behind[-2]


async def test_in_a_blocks_place_n_walks_its_biography() -> None:
    with open_recording(STORM) as timeline:
        steps_of_7 = sorted({step for step, _ in timeline.block_events(7, 0, timeline.last_step)})
    app = over_file(0)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "colon", *"b7", "enter")
        await press(pilot, "3", "enter")
        assert isinstance(app.screen, BlockScreen)
        found = [app.model.step]
        while True:
            await press(pilot, "n")
            if app.model.step == found[-1]:
                break
            found.append(app.model.step)
        told = sorted({one.step for one in app.screen.life.told if one.step > found[0]})
        assert found[1:] == told
        assert set(told) <= set(steps_of_7)
        assert len(found) > 3
        assert app.model.block_id == 7
        await press(pilot, "N")
        assert app.model.step == found[-2]
