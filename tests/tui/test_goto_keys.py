"""What `:` and `e` shorten, by pilot: a request by its number, a block at a step, one kind of event alone."""

from __future__ import annotations

import pytest
from textual.binding import Binding

from kvscope.tui.screens.block import BlockScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.screens.why import WhyScreen
from kvscope.tui.view.events import KINDS
from tests.builders import scenario
from tests.tui import scenes
from tests.tui.test_places_keys import press, shown


@pytest.mark.parametrize(
    ("typed", "step", "request_id"),
    [("r3", 2, "req-3"), ("14r3", 14, "req-3"), ("1r3", 1, "req-3")],
    ids=["where it arrives", "at a step", "before it has arrived"],
)
async def test_a_request_by_its_number(typed: str, step: int, request_id: str) -> None:
    app = scenes.screen(scenes.preemption()[0], step=0)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "colon", *typed, "enter")
        assert (app.model.step, app.model.selected_id) == (step, request_id)


async def test_a_block_at_a_step_opens_there() -> None:
    app = scenes.screen(scenes.preemption()[0], step=0)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "colon", *"14b2", "enter")
        assert isinstance(app.screen, BlockScreen)
        assert (app.model.step, app.model.block_id) == (14, 2)
        assert "BLOCK 2 ─ after step 14" in shown(app, "BlockFactsPanel")


async def test_a_request_whose_id_looks_like_a_block_is_that_request() -> None:
    run = scenario().request("a", "abcd", reply="12").request("3b2", "efgh", reply="12").request("r1", "ijkl").run()
    app = scenes.screen(scenes.recorded(run), step=0)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        for request_id in ("3b2", "r1"):
            await press(pilot, "colon", *request_id, "enter")
            assert isinstance(app.screen, MainScreen)
            assert app.model.selected_id == request_id


async def test_in_the_choice_of_events_0_is_none_or_all_and_n_goes_at_once() -> None:
    timeline, preempting = scenes.preemption()
    app = scenes.screen(timeline, step=0)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "e", "0", "2", "n")
        assert isinstance(app.screen, MainScreen)
        assert app.navigation.targets.kinds == {"preempted"}
        assert app.model.step == preempting
        await press(pilot, "e", "0", "0", "N")
        assert app.navigation.targets.kinds == set(KINDS)
        assert app.model.step < preempting


async def test_r_opens_the_whole_life_of_one_that_waits() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "r")
        assert isinstance(app.screen, WhyScreen)
        assert "ITS WHOLE LIFE" in shown(app, "#life")
        await press(pilot, "r")
        assert not app.screen.life.display


def test_no_key_of_a_place_does_two_things() -> None:
    """Whoever comes second would get the key, and nobody would be told."""
    places = [TimeScreen]
    for place in places:
        places += place.__subclasses__()
        keys = [
            key for one in place.__dict__.get("BINDINGS", []) if isinstance(one, Binding) for key in one.key.split(",")
        ]
        assert sorted(keys) == sorted(set(keys)), place
