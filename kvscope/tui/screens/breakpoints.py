"""The list of breakpoints, and the line to type a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from kvscope.analysis.conditions import ConditionError
from kvscope.tui.closing import Modal
from kvscope.tui.screens.modals import Box, keys_of
from kvscope.tui.view.breakpoints import breakpoint_lines, error_lines, fields_lines, hint_lines
from kvscope.tui.view.lines import Line
from kvscope.tui.widgets.lines_view import LinesView

if TYPE_CHECKING:
    from kvscope.tui.breakpoints import Breakpoints

MAX_SHOWN = 8


class BreakpointsModal(Modal[None]):
    """A list above, a line to type below; `tab` goes from one to the other, a condition that is typed to the line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "close", show=False),
        Binding("tab,shift+tab", "other", "list, line", show=False, priority=True),
        Binding("f1", "fields", "all fields", show=False),
    ]
    AUTO_FOCUS = ""

    def __init__(self, breakpoints: Breakpoints, *, is_ascii: bool) -> None:
        super().__init__()
        self._breakpoints = breakpoints
        self._current = 0
        self._shows_fields = False
        self._list = LinesView(id="breakpoints", is_ascii=is_ascii)
        self._list.can_focus = True
        self._message = LinesView(id="message", is_ascii=is_ascii)
        self._input = Input(id="condition", compact=True, placeholder="free_blocks < 4", select_on_focus=False)

    def compose(self) -> ComposeResult:
        with Box():
            yield self._list
            yield self._input
            yield self._message

    def on_mount(self) -> None:
        self._show()
        (self._list if self._breakpoints.all else self._input).focus()
        self._say(hint_lines())

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._show()

    def _show(self) -> None:
        self._current = min(self._current, max(len(self._breakpoints.all) - 1, 0))
        first = max(min(self._current - MAX_SHOWN // 2, len(self._breakpoints.all) - MAX_SHOWN), 0)
        entries = [(one.condition.text, one.is_enabled) for one in self._breakpoints.all]
        current = self._current if self._list.has_focus else None
        lines = breakpoint_lines(entries, first, MAX_SHOWN, current, max(self._width, 20))
        self._list.styles.height = len(lines)
        self._list.set_lines(lines)

    @property
    def _width(self) -> int:
        return self._list.size.width or self.app.size.width - 8

    def _say(self, lines: Sequence[Line]) -> None:
        self._message.styles.height = len(lines)
        self._message.set_lines(lines)

    def action_other(self) -> None:
        (self._input if self._list.has_focus else self._list).focus()

    def action_fields(self) -> None:
        """Lists every field that a condition may use, or shows the hints again."""
        self._shows_fields = not self._shows_fields
        room = max(self.app.size.height - 10, 3)
        self._say(fields_lines(self._width, room) if self._shows_fields else hint_lines())

    def on_key(self, event: events.Key) -> None:
        """The keys of the list; in the line they are letters."""
        if not self._list.has_focus:
            return
        has_some = bool(self._breakpoints.all)
        keys = keys_of(self)
        match event.key:
            case key if keys.is_of(key, "move.down"):
                self._current += 1
            case key if keys.is_of(key, "move.up"):
                self._current = max(self._current - 1, 0)
            case "space" | "enter" if has_some:
                self._breakpoints.toggle(self._current)
            case "x" | "delete" if has_some:
                self._breakpoints.remove(self._current)
            case "i":
                self._input.focus()
            case "q":
                self.dismiss()
            case _ if event.is_printable and event.character:
                # The beginning of a condition: no field begins with a key of the list.
                self._input.focus()
                self._input.insert_text_at_cursor(event.character)
            case _:
                return
        event.stop()
        event.prevent_default()
        self._show()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        error = self._breakpoints.add(event.value)
        if isinstance(error, ConditionError):
            self._input.cursor_position = error.column
            self._say(error_lines(error, self._input.size.width))
            return
        self._input.value = ""
        self._current = len(self._breakpoints.all) - 1
        self._list.focus()
        self._say(hint_lines())
        self._show()
