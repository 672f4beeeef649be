"""Percentiles of values that are all kept: exact, nothing is put into buckets.

The p-th percentile is interpolated linearly between the two values next to rank `p / 100 * (n - 1)`, counted from 0
(type 7 of Hyndman and Fan, 1996): what numpy, pandas and vLLM's own benchmarks report by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

PERCENTS = (50, 90, 95, 99)
_PIECE = 50_000


def percentile(ordered: Sequence[float], percent: float) -> float:
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


def in_order(values: Iterable[float]) -> list[float]:
    """Returns the values sorted, in pieces that are merged two by two: as quick as one sort, which however would let
    no other thread run for seconds where there are millions."""
    unsorted = list(values)
    pieces = [sorted(unsorted[start : start + _PIECE]) for start in range(0, len(unsorted), _PIECE)]
    while len(pieces) > 1:
        pieces = [sorted(chain.from_iterable(pieces[index : index + 2])) for index in range(0, len(pieces), 2)]
    return pieces[0] if pieces else []


def distribution(values: Iterable[float]) -> Distribution | None:
    """Returns the distribution of the values, None where there is none."""
    ordered = in_order(values)
    if not ordered:
        return None
    p50, p90, p95, p99 = (percentile(ordered, percent) for percent in PERCENTS)
    return Distribution(
        num_values=len(ordered),
        mean=sum(sum(ordered[start : start + _PIECE]) for start in range(0, len(ordered), _PIECE)) / len(ordered),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        smallest=ordered[0],
        largest=ordered[-1],
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram: how many values lie from `low` on and below `high`, the last bar's `high` included.

    Of whole numbers `high` is the largest one that belongs to the bar.
    """

    low: float
    high: float
    num_values: int


def histogram(values: Sequence[float], num_bars: int) -> list[Bar]:
    """Returns bars of equal width from the smallest to the largest value; a single bar where all are equal."""
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        return [Bar(low, high, len(values))]
    counts = [0] * num_bars
    width = (high - low) / num_bars
    for value in values:
        counts[min(int((value - low) / width), num_bars - 1)] += 1
    return [Bar(low + width * index, low + width * (index + 1), count) for index, count in enumerate(counts)]


def whole_histogram(values: Sequence[int], num_bars: int) -> list[Bar]:
    """Returns at most so many bars of whole numbers, of equal width, from the smallest to the largest value."""
    if not values:
        return []
    low, high = min(values), max(values)
    width = -(-(high - low + 1) // num_bars)
    counts = [0] * -(-(high - low + 1) // width)
    for value in values:
        counts[(value - low) // width] += 1
    return [Bar(low + width * index, low + width * (index + 1) - 1, count) for index, count in enumerate(counts)]
