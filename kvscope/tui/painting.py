"""Paints what a key has changed, all of it at once, as soon as it is known, and only the cells that differ.

Textual repaints by messages, from each part of the screen that changed to the screen, at its next tick, and composes
every row of it anew: a third of a key's time, and one key now and then in two paintings. That is still the way of all
that the parts of a place do not know: what opens above it, messages that lie over it, other sizes, the focus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from rich.console import Console
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.geometry import Offset, Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from kvscope.tui.view.changes import change_of
from kvscope.tui.view.lines import Line
from kvscope.tui.widgets.lines_view import LinesView


class Piece(NamedTuple):
    """Some cells of a row of the terminal."""

    column: int
    row: int
    strip: Strip


class PiecesUpdate(CompositorUpdate):
    """What is written to the terminal."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces

    def render_segments(self, console: Console) -> str:
        """Returns the pieces as escape sequences."""
        return "".join(
            f"\x1b[{piece.row + 1};{piece.column + 1}H{piece.strip.render(console)}" for piece in self.pieces
        )


class Painter:
    """Collects what changes in the views of a place."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._changes: dict[LinesView, dict[int, Line]] = {}
        self._is_collecting = False
        self._places: tuple[Mapping[Widget, object], dict[Widget, Offset | None]] = ({}, {})

    @contextmanager
    def together(self) -> Iterator[None]:
        """What changes within it is painted at its end."""
        if self._is_collecting:
            yield
            return
        self._is_collecting = True
        try:
            yield
        finally:
            self._is_collecting = False
            changes, self._changes = self._changes, {}
            if changes:
                self._paint(changes)

    def take(self, view: LinesView, rows: Mapping[int, Line]) -> bool:
        """Takes rows of a view that have changed, with what they showed before; False where nothing is collected."""
        if self._is_collecting:
            known = self._changes.setdefault(view, {})
            for row, before in rows.items():
                known.setdefault(row, before)
        return self._is_collecting

    def _paint(self, changes: Mapping[LinesView, Mapping[int, Line]]) -> None:
        """Paints where nothing lies over any of the views; else all of it is left to Textual, in one painting too."""
        screen = self._app.screen
        places = self._places_of(screen)
        seen = [view for view in changes if view in places]
        is_free = not screen._layout_required and not self._app._batch_count and screen.is_running
        if not is_free or any(places[view] is None for view in seen):
            seen = []
        pieces: list[Piece] = []
        for view, rows in changes.items():
            place = places.get(view) if view in seen else None
            if place is None:
                view.repaint(rows)
            else:
                pieces += _pieces(view, rows, place)
        if pieces:
            update: Any = PiecesUpdate(pieces)  # to Textual it is as good as its own
            self._app._display(screen, update)

    def _places_of(self, screen: Screen[object]) -> dict[Widget, Offset | None]:
        """Returns where each visible view begins on the terminal; None for one that is not to be seen as a whole."""
        visible = screen._compositor.visible_widgets
        if self._places[0] is not visible:
            self._places = visible, _free_places(visible)
        return self._places[1]


def _free_places(visible: Mapping[Widget, tuple[Region, Region]]) -> dict[Widget, Offset | None]:
    places: dict[Widget, Offset | None] = {}
    in_front: list[Region] = []
    for widget, (region, clip) in visible.items():  # what lies in front comes first
        if isinstance(widget, LinesView):
            is_whole = clip.contains_region(region) and not any(each.intersection(region) for each in in_front)
            left, top = widget.content_offset if is_whole and widget.paints_itself else (0, 0)
            places[widget] = Offset(region.x + left, region.y + top) if is_whole and widget.paints_itself else None
        in_front.append(region.intersection(clip))
    return places


def _pieces(view: LinesView, rows: Mapping[int, Line], place: Offset) -> Iterator[Piece]:
    width, height = view.size
    for row, before in rows.items():
        if row < height:
            column, spans, num_columns = change_of(before, view.line(row), width)
            if num_columns:
                yield Piece(place.x + column, place.y + row, view.painted(spans, num_columns))
