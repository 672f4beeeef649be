"""Garbage collection between the keys: Python's own would stop the screen for up to 60 ms, in the midst of a key.

What the screen starts with is never looked through again, and the rest when nobody waits: the young objects often, all
of them seldom. Where there is no leisure for long (a key is held, an engine is quick) it is done all the same, so that
memory stays bounded.
"""

from __future__ import annotations

import gc

_YOUNG_OBJECTS = 20_000
"""Objects made since the last collection that are worth a collection of the young ones: one or two milliseconds."""

_MAX_YOUNG_OBJECTS = 200_000
"""So many are not left until there is leisure."""

_YOUNG_COLLECTIONS = 20
"""After so many collections of the young ones all objects are looked through, after a longer leisure."""

_MAX_YOUNG_COLLECTIONS = 200

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
        num_young, _, num_collections = gc.get_count()
        if num_collections > (_YOUNG_COLLECTIONS if self._leisure >= _LONG_LEISURE else _MAX_YOUNG_COLLECTIONS):
            gc.collect()
        elif num_young > (_YOUNG_OBJECTS if self._leisure >= _LEISURE else _MAX_YOUNG_OBJECTS):
            gc.collect(1)
