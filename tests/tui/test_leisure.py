"""Garbage collection waits for leisure, but not for ever."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kvscope.tui.leisure import LeisurelyCollector


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


def test_young_garbage_goes_at_the_next_look(collector: LeisurelyCollector) -> None:
    assert not gc.isenabled()
    garbage = _knots(5_000)
    collector.look(has_work=True)
    assert garbage() is None


def test_a_little_garbage_is_left(collector: LeisurelyCollector) -> None:
    garbage = _knots(500)
    for _ in range(30):
        collector.look(has_work=False)
    assert garbage() is not None


def _aged(collector: LeisurelyCollector, num_looks: int, *, has_work: bool) -> weakref.ref[_Knot]:
    """Returns garbage that became garbage after so many looks, each with young garbage of its own."""
    knot = _Knot()
    for _ in range(num_looks):
        _knots(3_000)
        collector.look(has_work=has_work)
    return weakref.ref(knot)


def test_what_outlived_its_key_waits_for_leisure(collector: LeisurelyCollector) -> None:
    garbage = _aged(collector, 20, has_work=True)
    for has_work in (True, False, False, True, False, False):
        collector.look(has_work=has_work)
    assert garbage() is not None
    collector.look(has_work=False)
    assert garbage() is None


def test_it_does_not_wait_for_ever(collector: LeisurelyCollector) -> None:
    garbage = _aged(collector, 200, has_work=True)
    assert garbage() is not None
    for _ in range(2):
        _knots(3_000)
        collector.look(has_work=True)
    assert garbage() is None


def test_the_oldest_waits_for_a_long_leisure(collector: LeisurelyCollector) -> None:
    knot = _Knot()
    garbage = weakref.ref(knot)
    for _ in range(11):
        _aged(collector, 11, has_work=True)
        for _ in range(3):
            collector.look(has_work=False)
    del knot
    collector.look(has_work=True)
    for _ in range(15):
        collector.look(has_work=False)
    assert garbage() is not None
    collector.look(has_work=False)
    assert garbage() is None
