"""What opens above a place: a line to type, a question, a text, a choice of event kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Input

from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import wrap
from kvscope.errors import bounded
from kvscope.tui.closing import Modal, T
from kvscope.tui.keymap import Keys
from kvscope.tui.view.events import KINDS, EventKind
from kvscope.tui.view.lines import Line, Span, cut_line, line_width
from kvscope.tui.widgets.lines_view import LinesView

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

MAX_MESSAGE_ROWS = 4
WHEEL_LINES = 3


class Box(Vertical):
    """The frame of a modal."""


def keys_of(screen: Screen[Any]) -> Keys:
    """Returns the keys as they are configured, for what a modal says of them."""
    return cast("KvscopeApp", screen.app).keys


def say_in(view: LinesView, text: str, role: str) -> None:
    """Shows a text under the line that it is about, in as many rows as it needs."""
    rows = wrap((WordSpan(bounded(text)),), max(view.size.width, 20))[:MAX_MESSAGE_ROWS]
    height = max(len(rows), 1)
    if view.size.height != height:  # a style that is set lays everything out anew, also where it says the same
        view.styles.height = height
    view.set_lines([tuple(Span(span.text, role) for span in row) for row in rows])


class GotoModal(Modal[None]):
    """A line to type, as after `:`. `go` returns an error to show, or None where it went."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "close", show=False)]

    def __init__(
        self,
        hint: str,
        go: Callable[[str], str | None],
        *,
        is_ascii: bool,
        placeholder: str = "step, +n, n%, n.ns, req-7 or r7, b57, 120b57",
        text: str = "",
    ) -> None:
        super().__init__()
        self._go = go
        self._placeholder = placeholder
        self._text = text
        self._message = LinesView(id="message", is_ascii=is_ascii)
        self._hint = hint

    def compose(self) -> ComposeResult:
        with Box():
            yield Input(self._text, id="goto", compact=True, placeholder=self._placeholder, select_on_focus=False)
            yield self._message

    def on_mount(self) -> None:
        self.call_after_refresh(say_in, self._message, self._hint, "dim")

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        error = self._go(event.value)
        if error is None:
            self.dismiss()
        else:
            say_in(self._message, error, "bad")


class ViewModal(Modal[T]):
    """A frame around one view of lines. Subclasses make the view, and fill it in `_show` at every size."""

    _view: LinesView

    def compose(self) -> ComposeResult:
        with Box():
            yield self._view

    def on_mount(self) -> None:
        self._show()

    def on_resize(self, event: events.Resize) -> None:
        self._show()

    def _show(self) -> None:
        raise NotImplementedError


class QuestionModal(ViewModal[str | None]):
    """A question with an answer a key. Returns the key of the answer, None where it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "close", show=False)]

    def __init__(self, question: Sequence[Line], answers: Mapping[str, str], *, is_ascii: bool) -> None:
        super().__init__()
        self._answers = answers
        choices: list[Line] = [(Span(f"  {key}  ", "bold evict"), Span(text)) for key, text in answers.items()]
        self._lines: list[Line] = [*question, (), *choices, (Span("  esc ", "bold dim"), Span("stay here", "dim"))]
        self._view = LinesView(id="question", is_ascii=is_ascii)

    def _show(self) -> None:
        _fit(self._view, self._lines, *self.app.size)

    def on_key(self, event: events.Key) -> None:
        if event.character in self._answers:
            event.stop()
            self.dismiss(event.character)


class TextModal(ViewModal[None]):
    """Lines to read, with `j k` and page keys. `lines` builds them for a width."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "close", show=False),
        Binding("question_mark", "dismiss", "close", show=False, id="leave.help"),
        Binding("j,down", "scroll(1)", "down", show=False, id="move.down"),
        Binding("k,up", "scroll(-1)", "up", show=False, id="move.up"),
        Binding("pagedown,space", "scroll(10)", "down", show=False, id="move.page_down"),
        Binding("pageup", "scroll(-10)", "up", show=False, id="move.page_up"),
        Binding("g,home", "scroll(-100000)", "top", show=False, id="move.top"),
        Binding("G,end", "scroll(100000)", "end", show=False, id="move.bottom"),
    ]

    def __init__(self, lines: Callable[[int], Sequence[Line]], *, is_ascii: bool) -> None:
        super().__init__()
        self._build = lines
        self._first = 0
        self._lines: Sequence[Line] = ()
        self._view = LinesView(id="text", is_ascii=is_ascii)

    def fill(self, lines: Callable[[int], Sequence[Line]]) -> None:
        """Shows other lines, which took a while to come."""
        self._build = lines
        self._show()

    def action_walk(self, num_rows: int) -> None:
        """A notch of the wheel scrolls some lines."""
        self.action_scroll(WHEEL_LINES * num_rows)

    def action_scroll(self, num_lines: int) -> None:
        self._first += num_lines
        self._show()

    def _show(self) -> None:
        if not self._view.is_mounted:
            return
        columns, rows = self.app.size
        self._lines = self._build(inner_width(columns))
        height = inner_height(rows)
        self._first = max(min(self._first, len(self._lines) - height), 0)
        shown = list(self._lines[self._first : self._first + height])
        if len(self._lines) > height:
            left = len(self._lines) - self._first - height
            if left:
                walk = keys_of(self).shown("j k")
                shown[-1] = (Span(f"… {left + 1} more lines, {walk} scroll, esc closes", "dim"),)
        _fit(self._view, shown, columns, rows)


class EventKindsModal(ViewModal[None]):
    """Which events `n` and `N` go to: a digit turns a kind on or off, 0 all. `go` is what `n` and `N` do then."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss", "close", show=False),
        Binding("e", "dismiss", "close", show=False, id="events.kinds"),
        Binding("n", "go(1)", "next event", show=False, id="events.next"),
        Binding("N", "go(-1)", "previous event", show=False, id="events.previous"),
    ]

    def __init__(
        self, kinds: set[EventKind], marks: Mapping[EventKind, Span], go: Callable[[int], None], *, is_ascii: bool
    ) -> None:
        super().__init__()
        self._go = go
        self._kinds = kinds
        self._marks = marks
        self._view = LinesView(id="kinds", is_ascii=is_ascii)

    def _show(self) -> None:
        next_key, previous_key = keys_of(self).shown("n"), keys_of(self).shown("N")
        lines: list[Line] = [(Span(f"{next_key} and {previous_key} go to", "bold"),), ()]
        for number, kind in enumerate(KINDS, 1):
            mark = "✓" if kind in self._kinds else " "
            lines.append((Span(f" {number} ", "bold evict"), Span(f"[{mark}] "), self._marks[kind], Span(f" {kind}")))
        lines.append((Span(" 0 ", "bold evict"), Span("all or none", "dim")))
        lines += [(), (Span(f"esc closes, {next_key} and {previous_key} go at once", "dim"),)]
        _fit(self._view, lines, *self.app.size)

    def action_go(self, direction: int) -> None:
        """Closes, and goes to the next event of what is chosen now."""
        self.dismiss()
        self._go(direction)

    def on_key(self, event: events.Key) -> None:
        if event.character and event.character in "0123456789"[: len(KINDS) + 1]:
            number = int(event.character)
            # 0 with some chosen chooses none, else all
            self._kinds ^= {KINDS[number - 1]} if number else set(self._kinds) or set(KINDS)
            event.stop()
            self._show()


def inner_width(columns: int) -> int:
    """Returns the widest line of a modal: its frame takes at most nine tenths of the terminal (see app.tcss)."""
    return max(columns * 9 // 10 - 4, 1)


def inner_height(rows: int) -> int:
    """Returns the most lines of a modal, likewise."""
    return max(rows * 9 // 10 - 2, 1)


def _fit(view: LinesView, lines: Sequence[Line], columns: int, rows: int) -> None:
    """Gives the view the size of its lines, within the terminal."""
    width = min(max((line_width(line) for line in lines), default=1), inner_width(columns))
    view.styles.width = width
    view.styles.height = min(len(lines), inner_height(rows))
    view.set_lines([cut_line(line, width) for line in lines])
