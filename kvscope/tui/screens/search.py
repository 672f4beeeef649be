"""Search: the line to type after `/`, and the place of its hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from kvscope.tui.closing import Modal
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.modals import Box, say_in
from kvscope.tui.screens.place import Place
from kvscope.tui.view.lines import Line, Span, Target
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.lines_view import LinesView
from kvscope.tui.widgets.search_panel import HitsPanel

if TYPE_CHECKING:
    from kvscope.tui.finding import Finding

HINTS: tuple[Line, ...] = (
    (Span("words of a request, a prompt, an answer, an event, a reason", "dim"),),
    (Span("b57 block · #a1b2 hash · token:1234 · /regular expression/", "dim"),),
    (Span("text: output: id: event: reason: look there alone", "dim"),),
)


class SearchModal(Modal[None]):
    """A line to type. `submit` returns an error to show, or None where the search began."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "close", show=False)]

    def __init__(self, text: str, submit: Callable[[str], str | None], *, is_ascii: bool) -> None:
        super().__init__()
        self._text = text
        self._submit = submit
        self._message = LinesView(id="message", is_ascii=is_ascii)

    def compose(self) -> ComposeResult:
        with Box():
            yield Input(self._text, id="search", compact=True, placeholder="search", select_on_focus=True)
            yield self._message

    def on_mount(self) -> None:
        self._say(*HINTS)

    def _say(self, *lines: Line) -> None:
        self._message.styles.height = len(lines)
        self._message.set_lines(lines)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        error = self._submit(event.value)
        if error is None:
            self.dismiss()
        else:
            say_in(self._message, error, "bad")


class SearchScreen(Place):
    """The hits, by step; it fills while the search goes on."""

    KEYS = (
        ("n N", "hit"),
        ("j k", "move"),
        ("⏎", "go there"),
        ("esc", "stop, back"),
        ("/", "search"),
        ("e", "events again"),
        ("← →", "step"),
        ("w", "why"),
        ("?", "help"),
    )

    def __init__(self, model: ScreenModel, finding: Finding, *, is_ascii: bool) -> None:
        super().__init__(model, is_ascii=is_ascii)
        self._finding = finding
        self.hits = HitsPanel(model, finding, is_ascii=is_ascii)

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.hits
        yield self.footer

    @property
    def lists(self) -> Sequence[JumpPanel]:
        return (self.hits,)

    def divide(self, columns: int, rows: int) -> None:
        self.hits.styles.height = max(rows - 2, 1)
        self.hits.invalidate()

    def show(self) -> None:
        self.header.places = ("search",)
        super().show()

    def follow(self, target: Target) -> None:
        """Goes to the hit and leaves the list; `u` leads back to the step before, `/` and enter to the list."""
        if target.kind == "hit":
            self.kvscope.navigation.remember()
            self._finding.go_to(int(target.key))
            self.close()
        else:
            super().follow(target)

    def action_why(self, of_whole_life: bool = False) -> None:
        """Asks about the request of the chosen hit, at its step; esc leads back to the list."""
        target = self.hits.target
        if target is not None and target.kind == "hit":
            self.kvscope.navigation.remember()
            self._finding.go_to(int(target.key))
        super().action_why(of_whole_life)

    def action_leave(self) -> None:
        """Ends the search where one is under way; else leaves."""
        if not self._finding.leave():
            self.close()
