"""What all benchmarks share: ratios, their confidence interval, rounds that take turns, percentiles."""

from __future__ import annotations

import math

import pytest

from kvscope.errors import UsageError
from kvscope.session.bench_measure import latencies, ratio, take_turns, this_machine


def test_a_ratio_is_taken_round_by_round() -> None:
    """The second round is ten times slower for both; a ratio of sums would see nothing but that round."""
    found = ratio([1.0, 20.0, 4.0], [2.0, 20.0, 2.0])
    assert (found.median, found.smallest, found.largest, found.num_pairs) == (1.0, 0.5, 2.0, 3)
    assert found.mean == pytest.approx(1.0)


def test_the_interval_is_students() -> None:
    """Logarithms -ln 2, 0, ln 2: mean 0, deviation ln 2, t of two degrees of freedom 4.303."""
    found = ratio([1.0, 20.0, 4.0], [2.0, 20.0, 2.0])
    half = 4.303 * math.log(2) / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((math.exp(-half), math.exp(half)))


def test_one_round_has_no_interval() -> None:
    found = ratio([1.0], [2.0])
    assert (found.median, found.low, found.high) == (0.5, 0.0, math.inf)
    assert found.as_json()["confidence_95"] is None
    assert str(found) == "0.500 (0.500–0.500)"


def test_between_two_table_entries_the_interval_is_the_wider_one() -> None:
    """12 rounds have 11 degrees of freedom: the table has 10 (2.229) and 15 (2.132)."""
    found = ratio([2.0, 1.0] * 6, [1.0, 2.0] * 6)
    half = 2.229 * math.log(2) * math.sqrt(12 / 11) / math.sqrt(12)
    assert found.high == pytest.approx(math.exp(half))


def test_every_other_round_runs_backwards() -> None:
    order: list[str] = []

    def measure(name: str) -> float:
        order.append(name)
        return float(len(order))

    figures = take_turns({"a": lambda: measure("a"), "b": lambda: measure("b")}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert figures == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_no_rounds_is_refused() -> None:
    with pytest.raises(UsageError, match="0 rounds"):
        take_turns({}, 0)


def test_latencies_are_percentiles() -> None:
    found = latencies(float(value) for value in range(101))
    assert found.as_json() == {"num_values": 101, "p50": 50.0, "p90": 90.0, "p99": 99.0, "worst": 100.0}


def test_the_machine_is_named() -> None:
    machine = this_machine()
    assert machine.processor
    assert machine.num_cores >= 1
    assert machine.threads is None
    assert machine.versions["kvscope"] in machine.lines()[1]
