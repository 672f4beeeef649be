"""Garbage collection between the keys: Python's own would stop the screen for up to 60 ms, in the midst of a key.

Keys make next to no garbage that only the collector finds, a place that closes makes some; a state of a large pool
takes milliseconds to be looked through. So nothing is looked through but what has come since the last time, when much
has, and when nobody has pressed a key for a while. What has outlived that is looked through again, with all the rest,
in a long pause. Where there is no pause for hours (an engine is quick) it is done all the same, so that memory stays
bounded.
"""

from __future__ import annotations

import gc

NUM_OBJECTS = 20_000
"""More than there were, garbage among them: some megabytes, and some milliseconds of the collector."""

MAX_OBJECTS = 1_000_000
"""So many wait for no pause."""

PAUSE, LONG_PAUSE = 16, 160
"""Looks without work, one after another, that make a pause and a long one: a second, and ten."""

NUM_COLLECTIONS = 5
"""After so many, a long pause is used to look through everything."""


class LeisurelyCollector:
    """Takes the collector over, from `start` to `stop`. To be told, again and again, whether there is work."""

    def __init__(self) -> None:
        self._is_started = False
        self._num_idle_looks = 0
        self._num_collections = 0
        """Since everything was looked through."""

    def start(self) -> None:
        """To be called once the screen stands."""
        self._is_started = True
        gc.collect()
        gc.freeze()
        gc.disable()

    def stop(self) -> None:
        """Gives the collector back."""
        if self._is_started:
            self._is_started = False
            gc.unfreeze()
            gc.enable()

    def look(self, *, has_work: bool) -> None:
        """Collects where there is leisure and reason for it, or where it cannot wait."""
        if not self._is_started:
            return
        self._num_idle_looks = 0 if has_work else self._num_idle_looks + 1
        if self._num_idle_looks >= LONG_PAUSE and self._num_collections >= NUM_COLLECTIONS:
            gc.unfreeze()
            self._collect()
            self._num_collections = 0
        elif gc.get_count()[0] > (NUM_OBJECTS if self._num_idle_looks >= PAUSE else MAX_OBJECTS):
            self._collect()

    def _collect(self) -> None:
        gc.collect()
        gc.freeze()
        self._num_collections += 1
