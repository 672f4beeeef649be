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


def test_young_garbage_goes_where_there_is_leisure(collector: LeisurelyCollector) -> None:
    assert not gc.isenabled()
    garbage = _knots(30_000)
    for has_work in (True, False, False, True, False, False):
        collector.look(has_work=has_work)
    assert garbage() is not None
    collector.look(has_work=False)
    assert garbage() is None


def test_a_little_garbage_is_left(collector: LeisurelyCollector) -> None:
    garbage = _knots(1_000)
    for _ in range(30):
        collector.look(has_work=False)
    assert garbage() is not None


def test_much_garbage_does_not_wait_for_leisure(collector: LeisurelyCollector) -> None:
    garbage = _knots(210_000)
    collector.look(has_work=True)
    assert garbage() is None


def test_old_garbage_waits_for_a_long_leisure(collector: LeisurelyCollector) -> None:
    old = _Knot()
    garbage = weakref.ref(old)
    for _ in range(22):
        _knots(25_000)
        for has_work in (False, False, False, True):
            collector.look(has_work=has_work)
    del old
    for _ in range(15):
        collector.look(has_work=False)
    assert garbage() is not None
    collector.look(has_work=False)
    assert garbage() is None
