"""Pictures of a step read event by event, of the orders of pool and queues, and of panels that have the whole screen.

Each docstring says what a reviewer should see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui import scenes

Compare = Callable[..., Any]

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
NEXT = "right_square_bracket"


def after(*keys: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Returns what is done before the picture: keys, each when the one before it has done its work."""

    async def run(pilot: Pilot[None]) -> None:
        await scenes.settle(pilot)
        for key in keys:
            await pilot.press(key)
            await scenes.settle(pilot)
            await pilot.app.workers.wait_for_complete()
        await scenes.settle(pilot)

    return run


@SIZES
def test_inside_a_step(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Behind the fourth event of the preemption: its words on a background of their own, ▸ at the sentence that tells
    of it; req-4 waits again and its five blocks bear a red −, but nobody took one yet, and no tokens are given out."""
    timeline, step = scenes.preemption()
    screen = scenes.screen(timeline, step=step)
    assert snap_compare(screen, terminal_size=size, run_before=after(*[NEXT] * 4))


@SIZES
def test_the_event_log(snap_compare: Compare, size: tuple[int, int]) -> None:
    """The events of the step with some of the step before: the number of a step stands once, kinds and words in
    columns; below, the chosen event in full with its fields."""
    timeline, step = scenes.preemption()
    screen = scenes.screen(timeline, step=step)
    assert snap_compare(screen, terminal_size=size, run_before=after("E", "j", "j", "j"))


def test_the_kinds_to_list(snap_compare: Compare) -> None:
    """The list of kinds above the log, one turned off; the current one on its background, the keys below."""
    timeline, step = scenes.preemption()
    screen = scenes.screen(timeline, step=step)
    assert snap_compare(screen, terminal_size=(80, 24), run_before=after("E", "e", "j", "space"))


@SIZES
def test_the_pool_by_owner(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Each request begins a row that bears its name, shared blocks with the first of them; then cached and free ones.
    The selected request's blocks lie in one band. The title says the order."""
    screen = scenes.screen(scenes.full_pool())
    assert snap_compare(screen, terminal_size=size, run_before=after("v", "s", "s", "s", "s", "s"))


def test_the_pool_by_free_queue(snap_compare: Compare) -> None:
    """The free queue first, its rows numbered by when their blocks go out, as in "next out"; then the held ones."""
    timeline, step = scenes.preemption()
    assert snap_compare(scenes.screen(timeline, step=step), terminal_size=(120, 40), run_before=after("v", "v"))


@SIZES
def test_the_queues_alone(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Half of the screen for each queue, with columns of figures; the head and the selected request are in view."""
    screen = scenes.screen(scenes.many_requests())
    assert snap_compare(screen, terminal_size=size, run_before=after("Z", "pagedown", "pagedown"))


@SIZES
def test_the_timeline_alone(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Lanes for tokens, blocks, running, waiting and step time, one for each kind of mark, the life and the axis."""
    timeline, step = scenes.preemption()
    assert snap_compare(scenes.screen(timeline, step=step), terminal_size=size, run_before=after("5", "Z"))


def test_the_request_alone(snap_compare: Compare) -> None:
    """The block table with the steps since which the blocks are there, and all that it has generated."""
    screen = scenes.screen(scenes.preemption()[0], step=30)
    assert snap_compare(screen, terminal_size=(120, 40), run_before=after("2", "G", "4", "Z"))
