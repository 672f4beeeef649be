"""Percentiles of values that are all kept: exact, nothing is put into buckets.

The p-th percentile is interpolated linearly between the two values next to rank `p / 100 * (n - 1)`, counted from 0
(type 7 of Hyndman and Fan, 1996): what numpy, pandas and vLLM's own benchmarks report by default.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TypeVar

PERCENTS = (50, 90, 95, 99)
_PIECE = 50_000
_NUMBER_BITS = 40
N = TypeVar("N", int, float)


class Counted:
    """Whole numbers in ascending order, of which each may come many times: a million of them take two numbers each."""

    def __init__(self, values: Sequence[int], numbers: Sequence[int]) -> None:
        """`numbers`: how often each of the values comes. In any order, a value may stand there several times."""
        order = in_order([value << _NUMBER_BITS | index for index, value in enumerate(values)])
        indexes = [int(each) & (1 << _NUMBER_BITS) - 1 for each in order]
        self._values = array("q", (values[index] for index in indexes))
        self._ends = array("q", accumulate(numbers[index] for index in indexes))
        """How many numbers lie up to the end of each value."""

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, rank: int) -> int:
        """Returns the value of a rank, from 0 on; -1 is the last one."""
        rank = rank if rank >= 0 else len(self) + rank
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        return self._values[bisect_right(self._ends, rank)]

    def items(self) -> Iterator[tuple[int, int]]:
        """Yields values, in order, and how often they come; one may be told several times."""
        before = 0
        for value, end in zip(self._values, self._ends, strict=True):
            yield value, end - before
            before = end

    @property
    def mean(self) -> float:
        """There must be at least one."""
        return sum(value * number for value, number in self.items()) / len(self)


def percentile(ordered: Sequence[float] | Counted, percent: float) -> float:
    """Returns a percentile of values that are in ascending order; there must be at least one."""
    rank = percent / 100 * (len(ordered) - 1)
    below = int(rank)
    if below + 1 >= len(ordered):
        return ordered[-1]
    low, high = ordered[below], ordered[below + 1]
    return low + (high - low) * (rank - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What values of one kind look like; all in the unit of the values."""

    num_values: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    smallest: float
    largest: float


def in_order(values: Iterable[N]) -> list[N]:
    """Returns the values sorted, in pieces that are merged two by two: as quick as one sort, which however would let
    no other thread run for seconds where there are millions."""
    unsorted = list(values)
    pieces = [sorted(unsorted[start : start + _PIECE]) for start in range(0, len(unsorted), _PIECE)]
    while len(pieces) > 1:
        pieces = [sorted(chain.from_iterable(pieces[index : index + 2])) for index in range(0, len(pieces), 2)]
    return pieces[0] if pieces else []


def distribution(values: Iterable[float] | Counted) -> Distribution | None:
    """Returns the distribution of the values, None where there is none."""
    ordered = values if isinstance(values, Counted) else in_order(values)
    if not len(ordered):
        return None
    p50, p90, p95, p99 = (percentile(ordered, percent) for percent in PERCENTS)
    return Distribution(
        num_values=len(ordered),
        mean=_mean(ordered),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        smallest=ordered[0],
        largest=ordered[-1],
    )


def _mean(ordered: list[float] | Counted) -> float:
    if isinstance(ordered, Counted):
        return ordered.mean
    return sum(sum(ordered[start : start + _PIECE]) for start in range(0, len(ordered), _PIECE)) / len(ordered)


def _ends_of(values: Sequence[N] | Counted) -> tuple[N | int, N | int]:
    return (values[0], values[-1]) if isinstance(values, Counted) else (min(values), max(values))


def _counted(values: Sequence[N] | Counted) -> Iterable[tuple[N | int, int]]:
    return values.items() if isinstance(values, Counted) else ((value, 1) for value in values)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram: how many values lie from `low` on and below `high`, the last bar's `high` included.

    Of whole numbers `high` is the largest one that belongs to the bar.
    """

    low: float
    high: float
    num_values: int


def histogram(values: Sequence[float] | Counted, num_bars: int) -> list[Bar]:
    """Returns bars of equal width from the smallest to the largest value; a single bar where all are equal."""
    if not len(values):
        return []
    low, high = _ends_of(values)
    if low == high:
        return [Bar(low, high, len(values))]
    counts = [0] * num_bars
    width = (high - low) / num_bars
    for value, number in _counted(values):
        counts[min(int((value - low) / width), num_bars - 1)] += number
    return [Bar(low + width * index, low + width * (index + 1), count) for index, count in enumerate(counts)]


def whole_histogram(values: Sequence[int] | Counted, num_bars: int) -> list[Bar]:
    """Returns at most so many bars of whole numbers, of equal width, from the smallest to the largest value."""
    if not len(values):
        return []
    low, high = _ends_of(values)
    width = -(-(high - low + 1) // num_bars)
    counts = [0] * -(-(high - low + 1) // width)
    for value, number in _counted(values):
        counts[(value - low) // width] += number
    return [Bar(low + width * index, low + width * (index + 1) - 1, count) for index, count in enumerate(counts)]
