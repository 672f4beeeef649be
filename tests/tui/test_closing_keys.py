"""Keys that close, in a burst: each closes what it was typed into, and nothing below it.

The second of two `q` that a list had heard took the main screen's place away, and the screen ended with a traceback.
"""

from __future__ import annotations

import pytest
from textual import events

from kvscope.tui.app import KvscopeApp
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.why import WhyScreen
from tests.tui import scenes
from tests.tui.scenes import settle


@pytest.mark.parametrize("opening", ["b", "question_mark", "e", "E", "colon"])
async def test_closing_twice_closes_one_place(opening: str) -> None:
    timeline, step = scenes.preemption()
    app = KvscopeApp(timeline, initial_step=step)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("w")
        await settle(pilot)
        assert isinstance(app.screen, WhyScreen)
        await pilot.press(opening)
        await settle(pilot)
        opened = app.screen
        assert not isinstance(opened, WhyScreen)
        for _ in range(2):
            opened.dismiss()
        await settle(pilot)
        assert isinstance(app.screen, WhyScreen)


async def test_two_keys_that_a_list_has_heard_close_one_place() -> None:
    timeline, step = scenes.preemption()
    app = KvscopeApp(timeline, initial_step=step)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("b", "tab")
        await settle(pilot)
        listening = app.screen.focused
        assert listening is not None
        for _ in range(3):
            listening.post_message(events.Key("q", "q"))
        await settle(pilot)
        assert isinstance(app.screen, MainScreen)


async def test_the_palette_closes_once_too() -> None:
    timeline, step = scenes.preemption()
    app = KvscopeApp(timeline, initial_step=step)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+p")
        await settle(pilot)
        palette = app.screen
        for _ in range(2):
            palette.dismiss()
        await settle(pilot)
        assert isinstance(app.screen, MainScreen)
