"""Why: the selected request at the step, the first test that failed, who is in the way, what would have helped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.place import LIST_KEYS, Place
from kvscope.tui.view.layout import NARROW_COLUMNS, SHORT_ROWS
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.lines_view import LinesView
from kvscope.tui.widgets.why_panels import (
    AnswerPanel,
    HistoryPanel,
    HoldersPanel,
    LifePanel,
    SidePanel,
)
from kvscope.tui.widgets.why_reading import WhyReading


class WhyScreen(Place):
    """Why the selected request fares as it does at the step."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w,r", "whole_life", "its whole life, or this step", show=False, id="look.life"),
        Binding("n", "event(1)", "what happened to it next", show=False, id="events.its_next"),
        Binding("N", "event(-1)", "what happened to it before", show=False, id="events.its_previous"),
    ]

    IS_ABOUT_ONE = True
    KEYS = (
        *LIST_KEYS,
        ("w", "whole life"),
        ("n N", "its event"),
        ("?", "help"),
    )

    def __init__(self, model: ScreenModel, *, of_whole_life: bool = False, is_ascii: bool) -> None:
        super().__init__(model, is_ascii=is_ascii)
        self.reading = WhyReading(model)
        self.reading.shows_life = of_whole_life
        self.answer = AnswerPanel(self.reading, is_ascii=is_ascii)
        self.holders = HoldersPanel(self.reading, is_ascii=is_ascii)
        self.side = SidePanel(self.reading, is_ascii=is_ascii)
        self.life = LifePanel(self.reading, is_ascii=is_ascii)
        self.life.display = False
        self.history = HistoryPanel(self.reading, is_ascii=is_ascii)

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.answer
        with Horizontal(id="body"):
            yield self.holders
            yield self.side
            yield self.life
        yield self.history
        yield self.footer

    @property
    def lists(self) -> Sequence[JumpPanel]:
        return (self.holders, self.side, self.life)

    def on_mount(self) -> None:
        self.reading.attach(self.kvscope, self._more_to_show)
        super().on_mount()

    def divide(self, columns: int, rows: int) -> None:
        is_short = rows < SHORT_ROWS
        self.answer.is_roomy = not is_short
        self.history.num_bar_rows = 1 if is_short else 2
        self.history.styles.height = 4 if is_short else 6
        holders = columns // 2 - (2 if columns < NARROW_COLUMNS else 1)
        self.holders.styles.width = holders
        self.side.styles.width = columns - holders
        self.life.styles.width = columns
        for panel in (self.answer, *self.lists, self.history):
            panel.invalidate()

    def show(self) -> None:
        reading = self.reading
        self.header.places = (f"step {self.model.step}", self.model.selected_id or "no request", "why")
        is_step = reading.is_step_shown
        if self.life.display == is_step:
            self.holders.display = self.side.display = is_step
            self.life.display = not is_step
            self.focus_first()
        self.answer.styles.height = self.answer.rows()
        reading.ask()
        super().show()

    def _more_to_show(self) -> None:
        for panel in (self.holders, self.side, self.life):
            panel.invalidate()
            panel.show()

    def action_whole_life(self) -> None:
        self.reading.shows_life = not self.reading.shows_life
        for panel in (self.answer, *self.lists):
            panel.invalidate()
        self.show()

    def action_event(self, direction: int) -> None:
        self.kvscope.navigation.find_event_of_request(direction)

    def click_beside(self, view: LinesView, column: int) -> None:
        if view is self.history:
            step = self.history.step_at(column)
            if step is not None:
                self.kvscope.navigation.move_to(step)

    def end(self) -> None:
        self.reading.leave()
