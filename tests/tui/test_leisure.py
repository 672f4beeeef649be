"""Garbage collection waits for a pause, but not for ever."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kvscope.tui import leisure
from kvscope.tui.leisure import LONG_PAUSE, NUM_COLLECTIONS, NUM_OBJECTS, PAUSE, LeisurelyCollector


class _Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def _knots(number: int) -> weakref.ref[_Knot]:
    """Makes garbage; returns a reference to one of it."""
    knots = [_Knot() for _ in range(number)]
    return weakref.ref(knots[0])


@pytest.fixture
def collector() -> Iterator[LeisurelyCollector]:
    collector = LeisurelyCollector()
    collector.start()
    yield collector
    collector.stop()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def look(collector: LeisurelyCollector, num_looks: int, *, has_work: bool = False) -> None:
    for _ in range(num_looks):
        collector.look(has_work=has_work)


def test_much_garbage_goes_in_a_pause(collector: LeisurelyCollector) -> None:
    assert not gc.isenabled()
    garbage = _knots(NUM_OBJECTS + 1)
    look(collector, 100, has_work=True)
    look(collector, PAUSE - 1)
    look(collector, 1, has_work=True)
    look(collector, PAUSE - 1)
    assert garbage() is not None
    look(collector, 1)
    assert garbage() is None


def test_a_little_garbage_is_left(collector: LeisurelyCollector) -> None:
    garbage = _knots(NUM_OBJECTS // 4)
    look(collector, LONG_PAUSE + 1)
    assert garbage() is not None


def test_it_does_not_wait_for_ever(collector: LeisurelyCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leisure, "MAX_OBJECTS", 2 * NUM_OBJECTS)
    garbage = _knots(NUM_OBJECTS)
    look(collector, 1, has_work=True)
    assert garbage() is not None
    _knots(NUM_OBJECTS)
    look(collector, 1, has_work=True)
    assert garbage() is None


def test_what_has_outlived_collections_waits_for_a_long_pause(collector: LeisurelyCollector) -> None:
    knot = _Knot()
    garbage = weakref.ref(knot)
    for _ in range(NUM_COLLECTIONS - 1):
        _knots(NUM_OBJECTS + 1)
        look(collector, PAUSE)
        look(collector, 1, has_work=True)
    del knot
    look(collector, LONG_PAUSE)
    assert garbage() is not None
    _knots(NUM_OBJECTS + 1)
    look(collector, 1, has_work=True)
    look(collector, LONG_PAUSE - 1)
    assert garbage() is not None
    look(collector, 1)
    assert garbage() is None
