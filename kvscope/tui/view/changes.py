"""What differs between two lines that stand one after the other in the same row."""

from __future__ import annotations

from typing import NamedTuple

from kvscope.tui.view.lines import EMPTY, Line, line_width


class Change(NamedTuple):
    """A part of a row."""

    column: int
    """Where it begins, in cells."""
    spans: Line
    num_columns: int
    """As far as it is to be painted: beyond its spans with blanks."""


def change_of(old: Line, new: Line, num_columns: int) -> Change:
    """Returns what of a row of so many cells has to be painted anew; no columns where both lines look the same."""
    first = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        first += 1
    column = line_width(new[:first])
    rest = max(num_columns - column, 0)
    old, new = old[first:], new[first:]
    if not old and not new:
        return Change(column, EMPTY, 0)
    end = _num_equal_at_end(old, new)
    if end:
        width = line_width(new[:-end])
        if width == line_width(old[:-end]):  # what is behind it stands where it stood
            return Change(column, new[:-end], min(width, rest))
    return Change(column, new, rest)


def _num_equal_at_end(old: Line, new: Line) -> int:
    number = 0
    for before, after in zip(reversed(old), reversed(new), strict=False):
        if before != after:
            break
        number += 1
    return number
