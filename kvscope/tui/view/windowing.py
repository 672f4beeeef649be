"""Which rows of a list that is longer than its panel are shown, and how many are left out where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows left out here."""

    num_rows: int
    is_end: bool
    """Nothing follows it."""


Slot = int | Gap


def head_window(num_rows: int, height: int, selected: int | None, *, num_head: int = 0) -> list[Slot]:
    """Returns row numbers from the first on, with a gap behind them; the selected row is always among them.

    Where it lies deeper, the first `num_head` rows stay, a gap follows, then the rows around it.
    """
    if height <= 0:
        return []
    if num_rows <= height:
        return list(range(num_rows))
    if selected is None or selected < height - 1:
        return [*range(height - 1), Gap(num_rows - height + 1, is_end=True)]
    if height < num_head + 3:
        return [selected] if height == 1 else [Gap(selected, is_end=False), *_around(num_rows, height - 1, selected)]
    return [
        *range(num_head),
        *_with_gap(num_head, num_rows, height - num_head, selected),
    ]


def head_and_tail(num_rows: int, height: int, selected: int | None = None) -> list[Slot]:
    """Returns the first rows, a gap, and the last third; the rows around the selected one where it lies in the gap."""
    if height <= 0:
        return []
    if num_rows <= height:
        return list(range(num_rows))
    num_tail = height // 3
    num_head = height - 1 - num_tail
    if selected is not None and num_head <= selected < num_rows - num_tail:
        return head_window(num_rows, height, selected, num_head=min(2, num_head))
    return [*range(num_head), Gap(num_rows - num_head - num_tail, is_end=False), *range(num_rows - num_tail, num_rows)]


def _with_gap(start: int, end: int, height: int, selected: int) -> list[Slot]:
    """Rows around `selected` out of `start … end`, after a gap, with one behind where rows are left."""
    room = height - 1
    first = max(selected - room // 2, start + 1)
    if first + room >= end:
        first = end - room
        return [Gap(first - start, is_end=False), *range(first, end)]
    room -= 1
    first = max(selected - room // 2, start + 1)
    return [
        Gap(first - start, is_end=False),
        *range(first, first + room),
        Gap(end - first - room, is_end=True),
    ]


def _around(num_rows: int, height: int, selected: int) -> list[Slot]:
    first = min(selected, num_rows - height)
    return list(range(first, first + height))
