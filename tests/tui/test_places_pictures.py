"""Pictures of the places why, compare and statistics. Each docstring says what a reviewer should see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui import scenes
from tests.tui.test_places_keys import press

Compare = Callable[..., Any]

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])


def after(*keys: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Returns what is done before the picture: keys, and the answers that they ask for."""

    async def run(pilot: Pilot[None]) -> None:
        await scenes.settle(pilot)
        await press(pilot, *keys)
        await press(pilot)

    return run


@SIZES
def test_why_it_waits(snap_compare: Compare, size: tuple[int, int]) -> None:
    """req-5 is the head: "The pool is 4 blocks short" in red; five tests with ✓ or ○, the failed one in red with need
    and have; req-3 and req-4 alone would free enough; req-6 would have fitted; four more blocks would do; three ✗."""
    assert snap_compare(scenes.screen(scenes.full_pool()), terminal_size=size, run_before=after("w"))


def test_why_behind(snap_compare: Compare) -> None:
    """req-6 is behind req-5: its own sentence first, then the head's; tests and changes are named as the head's."""
    assert snap_compare(scenes.screen(scenes.full_pool()), terminal_size=(120, 40), run_before=after("j", "w"))


def test_why_of_one_that_was_preempted(snap_compare: Compare) -> None:
    """req-4 runs again at step 50: its whole life with its wait, its preemption, what it hit and why not more, its
    first token and worst gaps; below, the letters of its wait before the step."""
    timeline, _ = scenes.preemption()
    assert snap_compare(scenes.screen(timeline, step=50), terminal_size=(120, 40), run_before=after("w"))


@SIZES
def test_compare(snap_compare: Compare, size: tuple[int, int]) -> None:
    """A is step 2, B step 6: figures that differ before the equal ones, three requests changed, nine blocks taken and
    two with another owner, one admission in between as a jump to its step."""
    screen = scenes.screen(scenes.full_pool(), step=2)
    screen.model.mark(6)  # by key it would be said for some seconds, in the picture or not
    assert snap_compare(screen, terminal_size=size, run_before=after("d"))


@SIZES
def test_statistics(snap_compare: Compare, size: tuple[int, int]) -> None:
    """The whole run with a row of findings, five findings as jumps, beside them (120×40) latencies and figures."""
    assert snap_compare(scenes.screen(scenes.preemption()[0]), terminal_size=size, run_before=after("t"))


def test_why_in_ascii(snap_compare: Compare) -> None:
    """The answer in ASCII alone: y for a test that was passed, ! for the one that failed and in the history."""
    screen = scenes.screen(scenes.full_pool(), is_ascii=True)
    assert snap_compare(screen, terminal_size=(80, 24), run_before=after("w"))


@SIZES
def test_a_cell_of_several_blocks(snap_compare: Compare, size: tuple[int, int]) -> None:
    """2,047 blocks in too few cells: the chosen block's cell lists each with glyph, references, holder and text; the
    request that runs there has its blocks one behind the other."""
    screen = scenes.screen(scenes.many_requests(), step=3)
    assert snap_compare(screen, terminal_size=size, run_before=after("3", "j", "enter", "j"))
