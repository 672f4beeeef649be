"""The line for a bookmark's note, and the list of bookmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from kvscope.analysis.text import visible
from kvscope.tui.closing import Modal
from kvscope.tui.screens.modals import Box, ViewModal, inner_width, say_in
from kvscope.tui.view.lines import Line, Span, cut_line, fit, pad_line, put_behind
from kvscope.tui.widgets.lines_view import LinesView

if TYPE_CHECKING:
    from kvscope.tui.notes import Notes

MAX_SHOWN = 12


class NoteModal(Modal[None]):
    """A line for the note. `put` returns an error to show, or None where the bookmark was kept."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "close", show=False)]

    def __init__(self, step: int, note: str | None, put: Callable[[str], str | None], *, is_ascii: bool) -> None:
        super().__init__()
        self._note = note
        self._put = put
        verb = "keeps the bookmark" if note is None else "changes the note"
        self._hint: Line = (Span(f"step {step}", "bold"), Span(f": enter {verb}, esc leaves it as it is", "dim"))
        self._message = LinesView(id="message", is_ascii=is_ascii)

    def compose(self) -> ComposeResult:
        with Box():
            yield Input(self._note or "", id="note", compact=True, placeholder="a note, or nothing")
            yield self._message

    def on_mount(self) -> None:
        self._message.set_lines([self._hint])

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        error = self._put(event.value)
        if error is None:
            self.dismiss()
        else:
            say_in(self._message, error, "bad")


class BookmarksModal(ViewModal[None]):
    """All bookmarks by step; enter goes to one, `x` removes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "close", show=False),
        Binding("apostrophe", "dismiss", "close", show=False, id="keep.bookmarks"),
        Binding("j,down", "walk(1)", "down", show=False, id="move.down"),
        Binding("k,up", "walk(-1)", "up", show=False, id="move.up"),
        Binding("enter", "go", "go there", show=False),
        Binding("x,delete", "remove", "remove", show=False),
    ]

    def __init__(self, notes: Notes, step: int, *, is_ascii: bool) -> None:
        super().__init__()
        self._notes = notes
        steps = [bookmark.step for bookmark in notes.all]
        self._current = max(sum(known <= step for known in steps) - 1, 0)
        self._error = ""
        self._view = LinesView(id="bookmarks", is_ascii=is_ascii)

    def _show(self) -> None:
        bookmarks = self._notes.all
        self._current = min(max(self._current, 0), max(len(bookmarks) - 1, 0))
        first = max(min(self._current - MAX_SHOWN // 2, len(bookmarks) - MAX_SHOWN), 0)
        width = min(inner_width(self.app.size.width), 100)
        columns = len(str(bookmarks[-1].step)) if bookmarks else 1
        lines: list[Line] = [(Span("BOOKMARKS", "bold"), Span("  enter goes there, x removes, esc closes", "dim"))]
        for index, mark in enumerate(bookmarks[first : first + MAX_SHOWN], first):
            note = Span(fit(visible(mark.note), width), "text") if mark.note else Span("no note", "dim")
            line = cut_line((Span(f" {mark.step:>{columns}}  ", "bold"), note), width)
            lines.append(put_behind(pad_line(line, width), "row") if index == self._current else line)
        num_more = len(bookmarks) - first - MAX_SHOWN
        if num_more > 0:
            lines.append((Span(f" … {num_more} more", "dim"),))
        if self._error:
            lines.append(cut_line((Span(self._error, "bad"),), width))
        self._view.styles.width = width
        self._view.styles.height = len(lines)
        self._view.set_lines(lines)

    def action_walk(self, num_rows: int) -> None:
        self._current += num_rows
        self._show()

    def action_go(self) -> None:
        if self._notes.all:
            self._notes.go_to(self._notes.all[self._current].step)
        self.dismiss()

    def action_remove(self) -> None:
        if self._notes.all:
            self._error = self._notes.remove(self._notes.all[self._current].step) or ""
            self._show()
        if not self._notes.all:
            self.dismiss()
