"""Runs work that comes in small pieces beside the screen, and hands over what it has found a few times a second.

Over a file it reads in a thread, through a connection of its own; over a timeline in memory between two keys.
Cancelling whoever awaits it ends it after the slice under way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kvscope.replay.timeline import Timeline
from kvscope.tui.desk import OpenTimeline

P = TypeVar("P")

SLICE_SECONDS = 0.05
"""How long a slice reads in a thread before it hands over."""

MAX_PIECES = 500


async def in_slices(
    timeline: Timeline, open_timeline: OpenTimeline | None, work: Callable[[Timeline], Iterator[P]]
) -> AsyncGenerator[list[P], None]:
    """Yields the pieces of the work, some at a time. Raises what the work raises."""
    if open_timeline is None:
        pieces = work(timeline)
        while taken := _take(pieces, 0):
            yield taken
            await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="slices")
    own: Timeline | None = None
    try:
        own = await loop.run_in_executor(thread, open_timeline, timeline.path)
        pieces = work(own)
        while taken := await loop.run_in_executor(thread, _take, pieces, SLICE_SECONDS):
            yield taken
    finally:
        if own is not None:
            thread.submit(own.close)
        thread.shutdown(wait=False)


def _take(pieces: Iterator[P], seconds: float) -> list[P]:
    """Returns the next pieces: at least one, as many as come in the time; none at the end."""
    end = time.monotonic() + seconds
    taken: list[P] = []
    for piece in pieces:
        taken.append(piece)
        if time.monotonic() >= end or len(taken) >= MAX_PIECES:
            break
    return taken
