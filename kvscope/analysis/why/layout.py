"""Sections of sentences and tables: what a screen paints and a command prints of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kvscope.analysis.spans import Part, Span, dim, plain, say, strong, wrap
from kvscope.analysis.text import cell_width

WIDTH = 80
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence with its glyph, or a row of a table (which is never broken)."""

    spans: tuple[Span, ...]
    glyph: str = ""
    is_row: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Lines under a title; the first section of an answer has none."""

    title: str
    lines: tuple[Line, ...]


def sentence(glyph: str, *parts: Part | Iterable[Part]) -> Line:
    """Returns a sentence behind a glyph."""
    return Line(say(*parts), glyph)


def table(header: Sequence[str], rows: Sequence[Sequence[Part]], right: Sequence[int] = ()) -> list[Line]:
    """Returns rows under a header, padded to columns; those of `right` are flush right, the last is not padded."""
    cells = [[say(cell) for cell in row] for row in rows]
    head = [say(dim(cell)) for cell in header]
    widths = [max(cell_width(plain(row[column])) for row in [head, *cells]) for column in range(len(header))]
    return [Line(_row(row, widths, right), is_row=True) for row in [head, *cells]]


def _row(cells: Sequence[tuple[Span, ...]], widths: Sequence[int], right: Sequence[int]) -> tuple[Span, ...]:
    parts: list[Part] = []
    for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        pad = Span(" " * (width - cell_width(plain(cell))))
        is_last = column == len(cells) - 1
        if column:
            parts.append("  ")
        parts += [pad, *cell] if column in right else [*cell] if is_last else [*cell, pad]
    return say(*parts)


def laid_out(sections: Iterable[Section], width: int = WIDTH) -> list[tuple[Span, ...]]:
    """Returns the lines, none wider than `width`: sentences are wrapped at spaces, with what follows indented."""
    lines: list[tuple[Span, ...]] = []
    for section in sections:
        if not section.lines:
            continue
        if lines:
            lines.append(())
        if section.title:
            lines += wrap(say(strong(section.title)), width)
        for line in section.lines:
            lines += _broken(line, width)
    return lines


def _broken(line: Line, width: int) -> list[tuple[Span, ...]]:
    lead = f"{line.glyph} " if line.glyph else _INDENT
    if line.is_row and cell_width(plain(line.spans)) <= width - len(_INDENT):
        return [(Span(_INDENT), *_without_trailing_space(line.spans))]
    pieces = wrap(line.spans, width - cell_width(lead))
    return [(Span(lead if index == 0 else _INDENT), *piece) for index, piece in enumerate(pieces)]


def _without_trailing_space(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    if not spans:
        return spans
    return (*spans[:-1], replace(spans[-1], text=spans[-1].text.rstrip(" ")))


def as_text(sections: Iterable[Section], width: int = WIDTH) -> str:
    """Returns the sections as plain text."""
    return "\n".join(plain(line) for line in laid_out(sections, width))
