"""The wheel walks the list under the mouse, over the timeline it goes through time, and with ctrl it zooms."""

from __future__ import annotations

import pytest
from textual.events import MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot

from kvscope.tui.screens.modals import TextModal
from kvscope.tui.widgets.lines_view import LinesView
from tests.tui import scenes
from tests.tui.scenes import settle


async def turn(pilot: Pilot[None], selector: str, num_notches: int, *, control: bool = False) -> None:
    """Turns the wheel over the middle of a widget, positive towards the end."""
    kind = MouseScrollDown if num_notches > 0 else MouseScrollUp
    widget = pilot.app.screen.query_one(selector)
    middle = (widget.size.width // 2, widget.size.height // 2)
    await pilot._post_mouse_events([kind] * abs(num_notches), selector, middle, control=control)
    await settle(pilot)


async def test_the_list_under_the_mouse_is_walked_and_has_the_focus() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("2", "g")
        await settle(pilot)
        first, second, third = app.model.queue_ids[:3]
        await pilot.press("3")
        await turn(pilot, "#queues", 2)
        assert (app.model.step, app.model.selected_id) == (6, third)
        assert app.screen.query_one("#queues").has_focus
        await turn(pilot, "#queues", -1)
        assert app.model.selected_id == second
        await pilot.press("k")
        await settle(pilot)
        assert app.model.selected_id == first
        await pilot.click("#pool", offset=(4 + 2 * 3, 3))
        await settle(pilot)
        assert app.model.block_id == 3
        await turn(pilot, "#pool", 1)
        assert (app.model.step, app.model.block_id) == (6, 3 + 16)
        assert app.screen.query_one("#pool").has_focus


@pytest.mark.parametrize(("notches", "step"), [(-3, 61), (-1, 63), (2, 66)])
async def test_over_the_timeline_it_goes_through_time_and_the_focus_stays(notches: int, step: int) -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("colon", *"64", "enter")
        await settle(pilot)
        assert (app.model.step, app.model.window and app.model.window.steps_per_column) == (64, 1)
        await turn(pilot, "#timeline", notches)
        assert app.model.step == step
        assert app.screen.query_one("#queues").has_focus


async def test_a_notch_is_a_column_of_the_timeline_and_ctrl_zooms() -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=(76, 24)) as pilot:
        await pilot.press("colon", *"64", "enter")
        await settle(pilot)
        await turn(pilot, "#timeline", 1, control=True)
        assert (app.model.step, app.model.window and app.model.window.steps_per_column) == (64, 2)
        await turn(pilot, "#timeline", -2)
        assert app.model.step == 60
        await turn(pilot, "#timeline", -1, control=True)
        assert (app.model.step, app.model.window and app.model.window.steps_per_column) == (60, 1)


async def test_a_text_scrolls_by_three_lines() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("question_mark")
        await settle(pilot)
        assert isinstance(app.screen, TextModal)
        view = app.screen.query_one("#text", LinesView)
        before = list(view.lines)
        await turn(pilot, "#text", 1)
        assert list(view.lines[:-1]) == [*before[3:-1], *view.lines[len(before) - 4 : -1]]
        assert view.lines[0] == before[3]
        await turn(pilot, "#text", -1)
        assert list(view.lines) == before
