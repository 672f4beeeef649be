"""Tables and wrapped sentences for commands: plain text of at most 80 columns that survives being pasted anywhere."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from kvscope.analysis.number_text import duration, number, share
from kvscope.analysis.text import cell_width, fit, truncate

__all__ = ["WIDTH", "cut", "duration", "number", "share", "table", "wrapped"]

WIDTH = 80
_GAP = "  "


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, width: int = WIDTH, indent: str = "  ") -> list[str]:
    """Returns lines of columns: the first to the left and cut where the line would not fit, the others to the right."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(cell_width(row[column]) for row in cells) for column in range(len(head))]
    rest = cell_width(indent) + sum(widths[1:]) + len(_GAP) * (len(head) - 1)
    widths[0] = max(min(widths[0], width - rest), 4)
    lines = []
    for row in cells:
        first = fit(row[0], widths[0])
        others = [" " * (size - cell_width(cell)) + cell for cell, size in zip(row[1:], widths[1:], strict=True)]
        lines.append((indent + _GAP.join([first, *others])).rstrip())
    return lines


def wrapped(text: str, *, first: str = "  ", rest: str = "  ", width: int = WIDTH) -> list[str]:
    """Returns a sentence in lines, `first` before the first one and `rest` before the others."""
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    ) or [first.rstrip()]


def cut(text: str, width: int) -> str:
    """Returns a text cut to so many cells."""
    return truncate(text, width)
