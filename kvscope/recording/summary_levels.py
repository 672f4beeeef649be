"""The timeline's columns at wider zooms: one row for every 10, 100, 1,000 … steps, kept while writing.

A row's figures are the maxima over its steps, its happenings the sums. Only complete rows are written: a reader makes
up the last, incomplete one of a level from the level below.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.recording.schema import SUMMARY_COLUMNS, SUMMARY_LEVELS

SUMMARY_FIGURES = tuple(SUMMARY_COLUMNS)[2:]
"""The columns behind `num_steps` and `first_step`, in which a step and a summary look alike."""

NUM_MAXIMA = SUMMARY_FIGURES.index("step_ns") + 1
"""So many of them are maxima, the rest are sums."""

Figures = tuple[int, ...]


def combine(rows: Sequence[Figures]) -> Figures:
    """Returns the figures of several rows together."""
    columns = tuple(zip(*rows, strict=True))
    return (*map(max, columns[:NUM_MAXIMA]), *map(sum, columns[NUM_MAXIMA:]))


class SummaryLevels:
    """Takes the steps one after another, without a gap from 0 on, and gives the summaries that they complete."""

    def __init__(self) -> None:
        self._open: list[list[Figures]] = [[] for _ in SUMMARY_LEVELS]

    def add(self, step: int, figures: Figures) -> list[tuple[int, ...]]:
        """Returns the rows of `summaries` that end with this step."""
        complete: list[tuple[int, ...]] = []
        for rows, num_steps in zip(self._open, SUMMARY_LEVELS, strict=True):
            rows.append(figures)
            if (step + 1) % num_steps:
                break
            figures = combine(rows)
            rows.clear()
            complete.append((num_steps, step + 1 - num_steps, *figures))
        return complete
