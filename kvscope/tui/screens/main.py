"""The main screen: when, what was decided, what it left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from kvscope.analysis.pool_order import POOL_ORDERS
from kvscope.analysis.queue_order import QUEUE_ORDERS
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.view.help import KeyHelp
from kvscope.tui.view.layout import Layout, main_layout
from kvscope.tui.view.lines import Target
from kvscope.tui.widgets.bars import FooterBar, HeaderBar
from kvscope.tui.widgets.lines_view import LinesView
from kvscope.tui.widgets.panel import Panel
from kvscope.tui.widgets.pool_panel import PoolPanel
from kvscope.tui.widgets.prompt_bar import PROMPT_HELP, PROMPT_KEYS, PromptBar
from kvscope.tui.widgets.prompt_line import PromptLine
from kvscope.tui.widgets.queues_panel import QueuesPanel
from kvscope.tui.widgets.request_panel import RequestPanel
from kvscope.tui.widgets.step_panel import StepPanel
from kvscope.tui.widgets.timeline_panel import TimelinePanel

KEYS = (
    ("← →", "step"),
    ("n N", "event"),
    ("space", "run"),
    ("⏎", "open"),
    ("w", "why"),
    (":", "go to"),
    ("p", "prompt"),
    ("q", "quit"),
    ("?", "help"),
)

REPLAY_KEYS = tuple(("space", "play") if key == "space" else (key, name) for key, name in KEYS if key != "p")

T = TypeVar("T")


class MainScreen(TimeScreen):
    """Timeline, step, queues, pool, request, prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "focus_panel(1)", "next panel", show=False, id="move.next_panel"),
        Binding("shift+tab", "focus_panel(-1)", "previous panel", show=False, id="move.previous_panel"),
        Binding("1", "focus_named('step')", "step", show=False, id="move.step"),
        Binding("2", "focus_named('queues')", "queues", show=False, id="move.queues"),
        Binding("3", "focus_named('pool')", "pool", show=False, id="move.pool"),
        Binding("4", "focus_named('request')", "request", show=False, id="move.request"),
        Binding("5", "focus_named('timeline')", "timeline", show=False, id="move.timeline"),
        Binding("Z", "maximise", "the panel alone, and all again", show=False, id="move.maximise"),
        Binding("v", "pool_order", "pool by id, by owner, by free queue", show=False, id="look.pool_order"),
        Binding("s", "queue_order", "sort the queues", show=False, id="look.queue_order"),
    ]

    AUTO_FOCUS = ""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__()
        self._is_live = model.control is not None
        self.prompt_bar = PromptBar(is_ascii=is_ascii)
        self.prompt = self.prompt_bar.line
        self.header = HeaderBar(model, is_ascii=is_ascii)
        self.timeline_panel = TimelinePanel(model, is_ascii=is_ascii)
        self.step_panel = StepPanel(model, is_ascii=is_ascii)
        self.queues_panel = QueuesPanel(model, is_ascii=is_ascii)
        self.pool_panel = PoolPanel(model, is_ascii=is_ascii)
        self.request_panel = RequestPanel(model, is_ascii=is_ascii)
        self.footer = FooterBar(model, KEYS if self._is_live else REPLAY_KEYS, is_ascii=is_ascii)
        self._layout: Layout | None = None
        self._swaps_request = False
        """The request stands in the pool's place, on a screen that has no column for it."""
        self._is_prompt_open = False
        self._maximised: Panel | None = None
        """The panel that has the screen for itself."""

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.timeline_panel
        yield self.step_panel
        with Horizontal(id="body"):
            yield self.queues_panel
            yield self.pool_panel
            yield self.request_panel
        yield self.prompt_bar
        yield self.footer

    def on_mount(self) -> None:
        self._arrange()
        # Over an engine of its own there is nothing to look at yet; another's is looked at first.
        if self._is_live and self.kvscope.owns_engine and self.model.last_step < 0:
            self.open_prompt()
        else:
            self.queues_panel.focus()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Gives every part its place at this size."""
        columns, rows = self.app.size
        layout = self._layout = main_layout(columns, rows, is_live=self._is_live)
        timeline = layout.timeline
        self.timeline_panel.layout_rows = timeline
        self.timeline_panel.display = timeline is not None
        if timeline is not None:
            self.timeline_panel.styles.height = timeline.rows
        self.step_panel.display = self.queues_panel.display = True
        self.step_panel.styles.height = layout.step_rows
        self.queues_panel.styles.width = layout.queues_columns
        self.pool_panel.shows_zero_counts = layout.shows_zero_counts
        has_column = layout.request_columns > 0
        shows_request = has_column or (self._swaps_request and layout.pool_columns > 0)
        shows_pool = layout.pool_columns > 0 and (has_column or not shows_request)
        self.pool_panel.display, self.request_panel.display = shows_pool, shows_request
        self.pool_panel.styles.width = layout.pool_columns
        self.request_panel.styles.width = layout.request_columns if has_column else layout.pool_columns
        self.prompt_bar.display = layout.has_prompt or self._is_prompt_open
        self.prompt_bar.fit()
        self._arrange_maximised()
        for panel in self._panels:
            panel.invalidate()
        self.kvscope.show_soon()

    @property
    def _panels(self) -> tuple[Panel, ...]:
        """All that can have the focus, in the order of `tab`."""
        return (self.timeline_panel, self.step_panel, self.queues_panel, self.pool_panel, self.request_panel)

    def _arrange_maximised(self) -> None:
        """Gives the maximised panel, if one is, the place of all."""
        alone = self._maximised
        hint = f"{self.kvscope.keys.shown('Z')} shows all panels"
        for panel in self._panels:
            panel.leave_hint = hint if panel is alone else ""
            panel.set_class(panel is alone, "-maximised")
            if alone is not None:
                panel.display = panel is alone
        body = self.query_one("#body")
        body.display = alone is None or alone.parent is body
        if alone is not None and alone.parent is body:
            alone.styles.width = "100%"
        elif alone is not None:
            alone.styles.height = "1fr"

    # Focus

    def action_maximise(self) -> None:
        """Gives the focused panel the whole screen, or all of them their places again."""
        focused = next((panel for panel in self._panels if panel.has_focus), self.queues_panel)
        self._maximise(None if self._maximised is not None else focused)

    def _maximise(self, panel: Panel | None) -> None:
        focused = panel or self._maximised
        self._maximised = panel
        self._arrange()
        if focused is not None and focused.display:
            focused.focus()

    def action_focus_panel(self, direction: int) -> None:
        alone = self._maximised
        panels = [panel for panel in self._panels if panel.display or alone is not None]
        place = next((index for index, panel in enumerate(panels) if panel.has_focus), None)
        self._focus(panels[0 if place is None else (place + direction) % len(panels)])

    def _focus(self, panel: Panel) -> None:
        """Focuses a panel; a maximised one hands the screen over to it."""
        if self._maximised is not None:
            self._maximise(panel)
        elif panel.display:
            panel.focus()

    def action_focus_named(self, name: str) -> None:
        has_column = self._layout is not None and self._layout.request_columns > 0
        if name in ("pool", "request") and not has_column and (name == "request") != self._swaps_request:
            self._swaps_request = name == "request"
            self._arrange()
        panels: dict[str, Panel] = {
            "timeline": self.timeline_panel,
            "step": self.step_panel,
            "queues": self.queues_panel,
            "pool": self.pool_panel,
            "request": self.request_panel,
        }
        self._focus(panels[name])

    def action_leave(self) -> None:
        if self.kvscope.finding.leave() or self.kvscope.breakpoints.leave():
            return
        if self.model.walk.wanted is not None:
            self.kvscope.navigation.move_to(self.model.step)
        elif self._maximised is not None:
            self._maximise(None)
        else:
            self.queues_panel.focus()

    # Lists

    def action_walk(self, num_rows: int) -> None:
        model = self.model
        if self.focused is self.step_panel:
            self.step_panel.move(num_rows)
            return
        if self.focused is self.pool_panel:
            if model.block_id is not None:
                model.choose_block(self.pool_panel.beside(model.block_id, num_rows=num_rows))
        elif self.focused is self.request_panel:
            self._walk_table(num_rows)
        else:
            model.select_by(num_rows)
        self.kvscope.show_soon()

    def _walk_table(self, num_rows: int) -> None:
        blocks = self.model.selected_blocks
        if not blocks:
            return
        place = blocks.index(self.model.block_id) if self.model.block_id in blocks else 0
        self.model.choose_block(blocks[min(max(place + num_rows, 0), len(blocks) - 1)])

    def action_block(self, offset: int) -> None:
        if self.model.block_id is not None:
            self.model.choose_block(self.pool_panel.beside(self.model.block_id, num_cells=offset))
            self.kvscope.show_soon()

    def action_pool_order(self) -> None:
        """Lists the blocks in the next order; the chosen one stays chosen."""
        self.model.pool_order = _behind(POOL_ORDERS, self.model.pool_order)
        self.model.version += 1
        self.kvscope.show_soon()

    def action_queue_order(self) -> None:
        """Sorts the queues in the next order; the selected request stays selected."""
        self.model.queue_order = _behind(QUEUE_ORDERS, self.model.queue_order)
        self.model.version += 1
        self.kvscope.show_soon()

    def action_open(self) -> None:
        if self.step_panel.has_focus:
            self.kvscope.places.open_sentences(self.step_panel.all_sentences)
        elif self.pool_panel.has_focus:
            block_id = 1 if self.model.block_id is None else self.model.block_id
            self.kvscope.places.open_cell(self.pool_panel.cell_of(block_id), block_id)
        elif self.model.selected_id is not None:
            self.kvscope.places.open_request(self.model.selected_id)

    # Prompt

    def open_prompt(self) -> None:
        """Focuses the prompt line; where it has no row of its own it takes the footer's."""
        if not self._is_live:
            self.kvscope.say("This is a recording: there is no engine to send a prompt to")
            return
        self._is_prompt_open = True
        self._arrange()
        self.prompt.focus()

    @on(PromptLine.Left)
    def _close_prompt(self) -> None:
        self._is_prompt_open = False
        self._arrange()
        (self._maximised or self.queues_panel).focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._tell_keys()

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        self._tell_keys()

    def _tell_keys(self) -> None:
        """The footer tells the keys of what has the focus."""
        if self.prompt.has_focus:
            self.footer.tell(PROMPT_KEYS, are_fixed=True)
        else:
            self.footer.tell(KEYS if self._is_live else REPLAY_KEYS)

    @property
    def more_help(self) -> Sequence[KeyHelp]:
        return PROMPT_HELP if self._is_live else ()

    def show(self) -> None:
        self.prompt_bar.show()
        super().show()

    # Mouse

    @on(LinesView.Followed)
    def _follow(self, message: LinesView.Followed) -> None:
        self.kvscope.navigation.follow(message.target)

    @on(LinesView.Clicked)
    def _click(self, message: LinesView.Clicked) -> None:
        view = message.view
        if view is self.timeline_panel:
            step = self.timeline_panel.step_at(message.column)
            if step is not None:
                self.kvscope.navigation.move_to(step)
        elif view is self.queues_panel:
            request_id = self.queues_panel.request_at(message.row)
            if request_id is not None:
                self.kvscope.navigation.follow(Target("request", request_id))
                if message.chain > 1:
                    self.kvscope.places.open_request(request_id)
        elif view is self.pool_panel:
            block_id = self.pool_panel.block_at(message.row, message.column)
            if block_id is not None:
                self.kvscope.navigation.follow(Target("block", str(block_id)))
                if message.chain > 1:
                    self.kvscope.places.open_cell(self.pool_panel.cell_of(block_id), block_id)
        elif view is self.request_panel:
            block_id = self.request_panel.block_at(message.row)
            if block_id is not None:
                self.kvscope.navigation.follow(Target("block", str(block_id)))


def _behind(orders: Sequence[T], order: T) -> T:
    """Returns the next one, behind the last the first."""
    return orders[(orders.index(order) + 1) % len(orders)]
