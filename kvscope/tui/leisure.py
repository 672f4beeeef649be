"""Garbage collection between the keys: Python's own would stop the screen for up to 60 ms, in the midst of a key.

What the screen starts with is never looked through again. What a key made is looked through soon after it, which takes
a millisecond or two; the rest when nobody waits, the older the more seldom. Where there is no leisure for long (a key
is held, an engine is quick) it is done all the same, so that memory stays bounded.
"""

from __future__ import annotations

import gc

_YOUNG_OBJECTS = 2_000
"""About what two keys make."""

_COLLECTIONS = 10
"""After so many collections of one age, the next older objects are looked through where there is leisure."""

_MAX_COLLECTIONS = 200
"""And after so many where there is none."""

_LEISURE, _LONG_LEISURE = 3, 16
"""Looks without work, one after another, that make a leisure and a longer one: a fifth of a second, and a second."""


class LeisurelyCollector:
    """Takes the collector over, from `start` to `stop`. To be told, again and again, whether there is work."""

    def __init__(self) -> None:
        self._is_started = False
        self._leisure = 0

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
        self._leisure = 0 if has_work else self._leisure + 1
        num_objects, num_young, num_middle = gc.get_count()
        if num_middle > (_COLLECTIONS if self._leisure >= _LONG_LEISURE else _MAX_COLLECTIONS):
            gc.collect()
        elif num_young > (_COLLECTIONS if self._leisure >= _LEISURE else _MAX_COLLECTIONS):
            gc.collect(1)
        elif num_objects > _YOUNG_OBJECTS:
            gc.collect(0)
