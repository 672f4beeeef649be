"""A list of things of several lines, some of which lead somewhere: which lines a panel shows, and the next jump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.tui.view.lines import Line, Span, Target, cut_line, pad_line, put_behind


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing of the list."""

    lines: tuple[Line, ...]
    target: Target | None = None
    """Where enter leads; None for what is only to be read."""


@dataclass(frozen=True, slots=True)
class EntriesView:
    """The lines shown, and the entry that each belongs to (None: the line that counts the rest)."""

    lines: tuple[Line, ...]
    entry_of: tuple[int | None, ...]


def heading(line: Line) -> Entry:
    """A line to be read."""
    return Entry((line,))


def next_jump(entries: Sequence[Entry], current: int, offset: int) -> int:
    """Returns the entry that is `offset` jumps away from `current` (-1: none yet); at an end it is the last one there.

    A list without jumps is walked line by line.
    """
    jumps = [index for index, entry in enumerate(entries) if entry.target is not None]
    jumps = jumps or list(range(len(entries)))
    if not jumps:
        return -1
    if offset > 0:
        later = [index for index in jumps if index > current]
        return later[min(offset, len(later)) - 1] if later else jumps[-1]
    earlier = [index for index in jumps if index < current]
    return earlier[max(len(earlier) + offset, 0)] if earlier else jumps[0]


def entries_view(
    entries: Sequence[Entry], current: int, width: int, height: int, *, is_focused: bool, first: int = 0
) -> EntriesView:
    """Returns `height` lines of the list that hold all of the current entry, from line `first` on where that does.

    The current entry lies on its background while the panel has the focus; the last line counts what lies below.
    """
    rows = [(index, cut_line(line, width)) for index, entry in enumerate(entries) for line in entry.lines]
    start = min(max(first, 0), max(len(rows) - height, 0))
    own = [row for row, (index, _) in enumerate(rows) if index == current]
    if own:
        room = max(height - (1 if len(rows) > height else 0), 1)
        if own[-1] >= start + room:
            start = own[-1] - room + 1
        start = min(start, own[0], max(len(rows) - height, 0))
    shown = rows[start : start + height]
    num_below = len(rows) - start - len(shown)
    if num_below and len(shown) > 1:
        shown = shown[:-1]
        num_below += 1
    lines: list[Line] = []
    for index, line in shown:
        is_current = is_focused and index == current and entries[index].target is not None
        lines.append(put_behind(pad_line(line, width), "row") if is_current else line)
    owners: list[int | None] = [index for index, _ in shown]
    if num_below and len(shown) < height:
        lines.append((Span(f"… {num_below} more {'line' if num_below == 1 else 'lines'}", "dim"),))
        owners.append(None)
    return EntriesView(tuple(lines), tuple(owners))
