"""Stacked bars out of character cells: eighths of a cell where the terminal has them, whole cells where not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import EMPTY, Line, Span, merge


class Layer(NamedTuple):
    """One part of a stacked bar: its role, which is also the name of its background, and its fill without eighths."""

    role: str
    fill: str


@lru_cache(maxsize=1 << 12)
def stack_heights(values: tuple[int, ...], limit: int, num_rows: int) -> tuple[int, ...]:
    """Returns where each layer ends, in eighths of a row from the bottom. What is not zero is at least one eighth.

    Kept, since a page shows the same columns again and again.
    """
    if limit <= 0:
        return (0,) * len(values)
    top = num_rows * 8
    ends: list[int] = []
    total = end = 0
    for value in values:
        total += value
        end = max(round(total * top / limit), end + 1) if value else end
        ends.append(min(end, top))
    return tuple(ends)


def stacked_rows(
    columns: Sequence[tuple[int, ...] | None],
    layers: Sequence[Layer],
    num_rows: int,
    glyphs: Glyphs,
    *,
    cursor_column: int | None = None,
) -> list[Line]:
    """Paints bars from `stack_heights` of each column (None is no column), the top row first."""
    kind = (tuple(layers), num_rows, glyphs)
    bars = [_bar(ends, "", *kind) for ends in columns]
    if cursor_column is not None:
        bars[cursor_column] = _bar(columns[cursor_column], "cursor", *kind)
    return [merge(row) for row in zip(*bars, strict=True)] or [EMPTY] * num_rows


@lru_cache(maxsize=1 << 12)
def _bar(
    ends: tuple[int, ...] | None, behind: str, layers: tuple[Layer, ...], num_rows: int, glyphs: Glyphs
) -> tuple[Span, ...]:
    """Returns the cells of one bar from the top down; pages of one recording show the same few heights all over."""
    return tuple(_cell(ends, layers, row * 8, glyphs, behind) for row in range(num_rows - 1, -1, -1))


def _cell(ends: tuple[int, ...] | None, layers: Sequence[Layer], bottom: int, glyphs: Glyphs, behind: str) -> Span:
    if ends is None or not ends or ends[-1] <= bottom:
        return Span(" ", "text", behind)
    parts: list[tuple[Layer | None, int]] = []  # what fills this cell from below, and how many eighths of it
    start = bottom
    for layer, end in zip(layers, ends, strict=True):
        height = min(end, bottom + 8) - start
        if height > 0:
            parts.append((layer, height))
            start += height
    if start < bottom + 8:
        parts.append((None, bottom + 8 - start))
    if not glyphs.has_eighths:
        thickest = max(parts, key=lambda part: part[1])[0]
        if thickest is None and bottom == 0:  # what is not zero is seen
            thickest = parts[0][0]
        return Span(thickest.fill, thickest.role, behind) if thickest else Span(" ", "text", behind)
    return _two_part_cell(parts, glyphs, behind)


def _two_part_cell(parts: list[tuple[Layer | None, int]], glyphs: Glyphs, behind: str) -> Span:
    """A cell shows two colours: where three meet, the two thickest ones share it."""
    if len(parts) > 2:
        thinnest = min(range(len(parts)), key=lambda index: parts[index][1])
        lost = parts[thinnest][1]
        del parts[thinnest]
        neighbour = max(thinnest - 1, 0)
        parts[neighbour] = (parts[neighbour][0], parts[neighbour][1] + lost)
        return _two_part_cell(parts, glyphs, behind)
    lower, height = parts[0]
    upper = parts[1][0] if len(parts) == 2 else None
    if lower is None:
        return Span(" ", "text", behind)
    if len(parts) == 1:
        return Span(glyphs.eighths[8], lower.role, "")
    return Span(glyphs.eighths[height], lower.role, upper.role if upper else behind)
