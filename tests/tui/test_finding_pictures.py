"""Pictures of search, breakpoints, a block's place and bookmarks. Each docstring says what a reviewer should see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from kvscope.replay import open_recording
from kvscope.replay.bookmarks import Bookmarks
from kvscope.tui.app import KvscopeApp
from tests.recording.runs import record
from tests.tui import scenes

Compare = Callable[..., Any]

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])


def after(*keys: str, text: str = "") -> Callable[[Pilot[None]], Awaitable[None]]:
    """Returns what is done before the picture: keys, with `text` put into the line that is open when they end."""

    async def run(pilot: Pilot[None]) -> None:
        await scenes.settle(pilot)
        await pilot.press(*keys)
        await pilot.pause()
        if text:
            field = pilot.app.screen.query_one(Input)
            field.focus()
            field.value = text
            await pilot.press("enter")
        await pilot.app.workers.wait_for_complete()
        await scenes.settle(pilot)
        for field in pilot.app.screen.query(Input):
            field.cursor_blink = False

    return run


@SIZES
def test_hits_of_a_search(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Seven hits by step: ids, prompts, outputs, what was found in bold; the title counts hits and steps."""
    screen = scenes.screen(scenes.preemption()[0])
    assert snap_compare(screen, terminal_size=size, run_before=after("home", "slash", text="/tell|once|req-2/"))


def test_hits_in_chinese(snap_compare: Compare) -> None:
    """A prompt and an id in Chinese, the columns straight though a character is two cells wide."""
    screen = scenes.screen(scenes.wide_text())
    assert snap_compare(screen, terminal_size=(80, 24), run_before=after("slash", text="请求"))


def test_the_line_of_a_search(snap_compare: Compare) -> None:
    """The line to type, and below it what can be typed."""
    assert snap_compare(scenes.screen(scenes.one_request()), terminal_size=(80, 24), run_before=after("slash"))


@SIZES
def test_a_block(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Block 12 at step 20: what it is now, its holder, its text; below, its biography, what comes later dim."""
    screen = scenes.screen(scenes.preemption()[0], step=20)
    screen.model.block_id = 12
    assert snap_compare(screen, terminal_size=size, run_before=after("colon", text="b12"))


def test_breakpoints_with_an_error(snap_compare: Compare) -> None:
    """One breakpoint, and below the line what is wrong with another, a caret at its place."""

    async def run(pilot: Pilot[None]) -> None:
        await after("b", text="free_blocks < 4")(pilot)
        await after(text="preempted and request == req-7")(pilot)

    screen = scenes.screen(scenes.one_request())
    assert snap_compare(screen, terminal_size=(80, 24), run_before=run)


def test_bookmarks(snap_compare: Compare, tmp_path: Path) -> None:
    """Three bookmarks, one without a note; an escape sequence in a note is shown, the current one on its background."""
    path = record(tmp_path / "run.db", scenes.preempting_run().sink.steps)
    for step, note in ((3, "before it begins"), (20, ""), (66, "the end \x1b[31m[bold]在这里")):
        Bookmarks(path).put(step, note)
    screen = KvscopeApp(open_recording(path), open_timeline=open_recording)
    assert snap_compare(screen, terminal_size=(80, 24), run_before=after("apostrophe"))
