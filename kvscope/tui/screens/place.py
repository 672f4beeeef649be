"""A place made of lists: `tab` goes from one to the next, `j k` walk it, enter follows, esc leads back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.view.lines import Target
from kvscope.tui.widgets.bars import FooterBar, HeaderBar
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.lines_view import LinesView
from kvscope.tui.widgets.panel import Panel

LIST_KEYS = (("← →", "step"), ("esc", "back"), ("j k", "move"), ("⏎", "go to"), ("tab", "panel"))
"""With which the footer of a place of several lists begins."""


class Place(TimeScreen):
    """Base of the places that answer a question. Subclasses compose, arrange, and say where their lists lead."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "other_panel(1)", "next panel", show=False, id="move.next_panel"),
        Binding("shift+tab", "other_panel(-1)", "previous panel", show=False, id="move.previous_panel"),
    ]

    AUTO_FOCUS = ""
    KEYS: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The footer."""

    IS_OF_STEP: ClassVar[bool] = True
    """It is about the step, which is what is copied here; else the place itself is."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__()
        self.header = HeaderBar(model, is_ascii=is_ascii)
        self.footer = FooterBar(model, self.KEYS, is_ascii=is_ascii)

    @property
    def lists(self) -> Sequence[JumpPanel]:
        """The lists of the place, in the order of `tab`."""
        raise NotImplementedError

    @property
    def panels(self) -> Sequence[Panel]:
        """All that an answer is drawn in: the lists, and what a place has beside them."""
        return self.lists

    def report(self) -> list[str]:
        """Returns all that the place says, as text."""
        return ["".join(span.text for span in line).rstrip() for panel in self.panels for line in panel.all_lines()]

    def command(self) -> list[str]:
        """Returns the words of the command that prints what a place says that is not about a step."""
        raise NotImplementedError

    def _more_to_show(self) -> None:
        """Draws anew what an answer has brought."""
        for panel in self.panels:
            panel.invalidate()
            panel.show()

    def divide(self, columns: int, rows: int) -> None:
        """Gives every part its place in a terminal of this size."""
        raise NotImplementedError

    def follow(self, target: Target) -> None:
        """Goes where an entry leads: a request and a block open their places, a hash its life, a step is gone to."""
        if target.kind == "step":
            self.kvscope.navigation.follow(target)
            return
        self.kvscope.navigation.remember()
        if target.kind == "hash":
            self.kvscope.finding.submit(f"#{target.key}")
        elif target.kind == "request":
            self.kvscope.places.open_request(target.key)
        elif target.kind == "block":
            self.kvscope.places.open_block(int(target.key))

    def on_mount(self) -> None:
        self._divide()
        self.focus_first()

    def on_resize(self, event: events.Resize) -> None:
        self._divide()

    def _divide(self) -> None:
        self.divide(*self.app.size)
        self.show()

    def focus_first(self) -> None:
        """Focuses the first list that is shown."""
        for panel in self.lists:
            if panel.display:
                panel.focus()
                return

    @property
    def focused_list(self) -> JumpPanel | None:
        return next((panel for panel in self.lists if panel is self.focused), None)

    def action_other_panel(self, direction: int) -> None:
        shown = [panel for panel in self.lists if panel.display]
        place = next((index for index, panel in enumerate(shown) if panel.has_focus), -1 if direction > 0 else 0)
        if shown:
            shown[(place + direction) % len(shown)].focus()

    def action_walk(self, num_rows: int) -> None:
        panel = self.focused_list
        if panel is not None:
            panel.walk(num_rows)

    def action_open(self) -> None:
        panel = self.focused_list
        if panel is not None and panel.target is not None:
            self.follow(panel.target)

    @on(LinesView.Followed)
    def _follow(self, message: LinesView.Followed) -> None:
        self.follow(message.target)

    @on(LinesView.Clicked)
    def _click(self, message: LinesView.Clicked) -> None:
        view = message.view
        if isinstance(view, JumpPanel):
            view.focus()
            view.choose_row(message.row)
            if message.chain > 1:
                self.action_open()
        else:
            self.click_beside(view, message.column)

    def click_beside(self, view: LinesView, column: int) -> None:
        """A click on something that is no list."""


class TwoLists(Place):
    """A panel across the top, and two lists side by side below it. Subclasses make them before this."""

    top: Panel
    left: JumpPanel
    right: JumpPanel

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.top
        with Horizontal(id="body"):
            yield self.left
            yield self.right
        yield self.footer

    @property
    def lists(self) -> Sequence[JumpPanel]:
        return (self.left, self.right)

    @property
    def panels(self) -> Sequence[Panel]:
        return (self.top, *self.lists)

    def divide_lists(self, columns: int, left: int) -> None:
        """Gives the left list so many of the columns, the right one the others; all is drawn anew."""
        self.left.styles.width, self.right.styles.width = left, columns - left
        for panel in self.panels:
            panel.invalidate()
