"""A request as a place: its facts, its life, its block table, who shares its blocks, what happened to it."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.place import LIST_KEYS
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.view.lines import Target
from kvscope.tui.widgets.bars import FooterBar, HeaderBar
from kvscope.tui.widgets.lines_view import LinesView
from kvscope.tui.widgets.request_panels import HappeningsPanel, OverviewPanel, TablePanel

KEYS = (
    *LIST_KEYS,
    ("w", "why"),
    ("n N", "its event"),
    ("?", "help"),
)

MIN_COLUMNS_FOR_TWO = 100


class RequestScreen(TimeScreen):
    """One request at the step."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "other_panel", "other panel", show=False, id="move.next_panel"),
    ]

    IS_ABOUT_ONE = True
    AUTO_FOCUS = ""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__()
        self.header = HeaderBar(model, is_ascii=is_ascii)
        self.overview = OverviewPanel(model, is_ascii=is_ascii)
        self.table_panel = TablePanel(model, is_ascii=is_ascii)
        self.happenings = HappeningsPanel(model, is_ascii=is_ascii)
        self.footer = FooterBar(model, KEYS, is_ascii=is_ascii)

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.overview
        with Horizontal(id="body"):
            yield self.table_panel
            yield self.happenings
        yield self.footer

    def on_mount(self) -> None:
        self._arrange()
        self.table_panel.focus()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def _arrange(self) -> None:
        columns, rows = self.app.size
        self.overview.styles.height = self.overview.num_rows(columns, rows)
        is_wide = columns >= MIN_COLUMNS_FOR_TWO
        self.table_panel.styles.width = columns * 7 // 12 if is_wide else columns
        self.happenings.styles.width = columns - columns * 7 // 12
        self.happenings.display = is_wide
        for panel in (self.overview, self.table_panel, self.happenings):
            panel.invalidate()
        self.show()

    def show(self) -> None:
        self.header.places = (f"step {self.model.step}", self.model.selected_id or "no request")
        super().show()

    def action_other_panel(self) -> None:
        if self.happenings.display and not self.happenings.has_focus:
            self.happenings.focus()
        elif self.table_panel.has_focus and not self.happenings.display:
            self.table_panel.display, self.happenings.display = False, True
            self.happenings.styles.width = self.app.size.width
            self.happenings.focus()
        else:
            if self.app.size.width < MIN_COLUMNS_FOR_TWO:
                self.table_panel.display, self.happenings.display = True, False
            self.table_panel.focus()

    def action_walk(self, num_rows: int) -> None:
        if self.focused is self.happenings:
            self.happenings.move(num_rows)
            return
        model = self.model
        blocks = model.selected_blocks
        if blocks:
            place = blocks.index(model.block_id) if model.block_id in blocks else 0
            model.choose_block(blocks[min(max(place + num_rows, 0), len(blocks) - 1)])
            self.kvscope.show_soon()

    def action_event(self, direction: int) -> None:
        self.kvscope.navigation.find_event_of_request(direction)

    def action_open(self) -> None:
        """Goes to the step of the chosen happening; from the block table to the chosen block."""
        if self.table_panel.has_focus and self.model.block_id in self.model.selected_blocks:
            assert self.model.block_id is not None
            self.kvscope.places.open_block(self.model.block_id)
        if self.happenings.has_focus:
            step = self.happenings.current_step
            if step is not None:
                self.kvscope.navigation.follow(Target("step", str(step)))

    @on(LinesView.Followed)
    def _follow(self, message: LinesView.Followed) -> None:
        if message.target.kind == "request":
            self.kvscope.navigation.remember()
            self.kvscope.places.open_request(message.target.key)
        else:
            self.kvscope.navigation.follow(message.target)

    @on(LinesView.Clicked)
    def _click(self, message: LinesView.Clicked) -> None:
        message.view.focus()
