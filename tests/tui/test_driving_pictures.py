"""Pictures of what drives an engine. Each docstring says what a reviewer should see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from kvscope.tui.app import KvscopeApp
from kvscope.tui.screens.workloads import WorkloadForm
from tests.tui import scenes
from tests.tui.scenes import FakeEngine
from tests.tui.test_driving_keys import IDLE, FakeStarter, below, fill, opened, restartable, until

Compare = Callable[..., Any]

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])


def after(*keys: str, fields: dict[str, str] | None = None, text: str = "") -> Callable[[Pilot[None]], Awaitable[None]]:
    """Returns what is done before the picture: keys, fields of the form that they open and enter, text below it."""

    async def run(pilot: Pilot[None]) -> None:
        app = await opened(pilot)
        app.main_screen.prompt.cursor_blink = False
        await pilot.press(*keys)
        await scenes.settle(pilot)
        if isinstance(app.screen, WorkloadForm):
            await until(pilot, lambda: "Rehearsed" in below(app))
        for name, value in (fields or {}).items():
            await fill(pilot, name, value)
        if fields:
            await pilot.press("enter")
        if text:
            await until(pilot, lambda: text in below(app))
        await scenes.settle(pilot)
        for line in app.screen.query(Input):
            line.cursor_blink = False

    return run


def live() -> KvscopeApp:
    return scenes.live_screen(FakeEngine(IDLE), [scenes.one_request()])


@SIZES
def test_a_prompt_of_several_lines(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Three lines above the footer, which tells the prompt's keys; "chat ›" to the left, sampling to the right."""
    keys = (*"First line", "ctrl+n", *"second", "ctrl+n", *"third")
    assert snap_compare(live(), terminal_size=size, run_before=after(*keys))


@SIZES
def test_settings_of_a_prompt_with_errors(snap_compare: Compare, size: tuple[int, int]) -> None:
    """copies and top_p marked ✗ beside their fields, the limit of copies in full below; seed as it was typed."""
    run = after("ctrl+o", fields={"seed": "7", "copies": "0", "top_p": "2"}, text="copies must be from 1")
    assert snap_compare(live(), terminal_size=size, run_before=run)


@SIZES
def test_the_menu_of_workloads(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Four numbered entries with what each sends, the second one on the selection's background."""
    assert snap_compare(live(), terminal_size=size, run_before=after("escape", "W", "j"))


@SIZES
def test_a_storm(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Figures, what it sends, where to look, and the rehearsal with its number of preemptions."""
    assert snap_compare(live(), terminal_size=size, run_before=after("escape", "W", "3"))


@SIZES
def test_a_restart_with_errors(snap_compare: Compare, size: tuple[int, int]) -> None:
    """What was asked for in bright letters, what was chosen dim; num_gpu_blocks marked; where the recording lies."""
    app = restartable(FakeEngine(IDLE), FakeStarter({}))
    run = after(
        "escape", "R", fields={"policy": "lifo", "num_gpu_blocks": "1"}, text="num_gpu_blocks must be at least 2"
    )
    assert snap_compare(app, terminal_size=size, run_before=run)
