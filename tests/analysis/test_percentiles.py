"""The definition, on examples that are worked out by hand."""

from __future__ import annotations

from kvscope.analysis.percentiles import Bar, Distribution, distribution, histogram, percentile, whole_histogram


def test_a_percentile_lies_between_the_two_values_next_to_its_rank() -> None:
    values = [15, 20, 35, 40, 50]
    # Rank 0.4 × 4 = 1.6: 20 + 0.6 × (35 − 20). The same as numpy.percentile(values, 40).
    assert percentile(values, 40) == 29
    assert [percentile(values, percent) for percent in (0, 25, 50, 75, 100)] == [15, 20, 35, 40, 50]


def test_of_one_value_every_percentile_is_that_value() -> None:
    assert distribution([7]) == Distribution(num_values=1, mean=7, p50=7, p90=7, p95=7, p99=7, smallest=7, largest=7)


def test_of_the_numbers_from_1_to_101_the_percentile_is_the_percent_plus_1() -> None:
    assert distribution(range(101, 0, -1)) == Distribution(
        num_values=101, mean=51, p50=51, p90=91, p95=96, p99=100, smallest=1, largest=101
    )


def test_no_values_have_no_distribution() -> None:
    assert distribution([]) is None
    assert histogram([], 4) == []


def test_a_histogram_counts_each_value_once_the_largest_in_the_last_bar() -> None:
    assert histogram([0, 1, 2, 2, 5, 7, 8], 4) == [Bar(0, 2, 2), Bar(2, 4, 2), Bar(4, 6, 1), Bar(6, 8, 2)]
    assert histogram([3, 3], 4) == [Bar(3, 3, 2)]


def test_bars_of_whole_numbers_end_at_whole_numbers() -> None:
    assert whole_histogram([0, 1, 1, 0, 1], 10) == [Bar(0, 0, 2), Bar(1, 1, 3)]
    # 3 to 12 are ten numbers; four bars take three each, the last one holds 12 alone.
    assert whole_histogram([3, 4, 5, 6, 12], 4) == [Bar(3, 5, 3), Bar(6, 8, 1), Bar(9, 11, 0), Bar(12, 14, 1)]
    assert whole_histogram([], 4) == []
