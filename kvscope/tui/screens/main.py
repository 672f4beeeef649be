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
from kvscope.tui.screens.arrangement import Arrangement
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.view.help import KeyHelp
from kvscope.tui.view.lines import Target
from kvscope.tui.widgets.bars import FooterBar, HeaderBar
from kvscope.tui.widgets.lines_view import LinesView
from kvscope.tui.widgets.panel import Panel
from kvscope.tui.widgets.pool_panel import PoolPanel
from kvscope.tui.widgets.prompt_bar import PromptBar, prompt_help, prompt_keys
from kvscope.tui.widgets.prompt_line import PromptLine
from kvscope.tui.widgets.queues_panel import QueuesPanel
from kvscope.tui.widgets.request_panel import RequestPanel
from kvscope.tui.widgets.step_panel import StepPanel
from kvscope.tui.widgets.timeline_panel import TimelinePanel

KEYS = (
    ("← →", "step"),
    ("n N", "event"),
    ("f", "filter"),
    ("e", "kinds"),
    ("space", "run"),
    ("⏎", "open"),
    ("w", "why"),
    ("t", "findings"),
    ("/", "find"),
    (":", "go to"),
    ("p", "prompt"),
    ("q", "quit"),
    ("?", "help"),
)
"""The footer: what opens most answers, for somebody who has just come."""

YIELDING = ("e", "f", ":", "/")
"""Its keys that make room first: those that one looks for when the others are known."""

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
        keys = KEYS if self._is_live else REPLAY_KEYS
        self.footer = FooterBar(model, keys, yielding=YIELDING, is_ascii=is_ascii)
        self._arrangement = Arrangement(self)

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
        self._arrangement.arrange(is_live=self._is_live)

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All that can have the focus, in the order of `tab`."""
        return (self.timeline_panel, self.step_panel, self.queues_panel, self.pool_panel, self.request_panel)

    # Focus

    def action_maximise(self) -> None:
        """Gives the focused panel the whole screen, or all of them their places again."""
        focused = next((panel for panel in self.panels if panel.has_focus), self.queues_panel)
        self._maximise(None if self._arrangement.maximised is not None else focused)

    def _maximise(self, panel: Panel | None) -> None:
        focused = panel or self._arrangement.maximised
        self._arrangement.maximised = panel
        self._arrange()
        if focused is not None and focused.display:
            focused.focus()

    def action_focus_panel(self, direction: int) -> None:
        alone = self._arrangement.maximised
        panels = [panel for panel in self.panels if panel.display or alone is not None]
        place = next((index for index, panel in enumerate(panels) if panel.has_focus), None)
        self._focus(panels[0 if place is None else (place + direction) % len(panels)])

    def _focus(self, panel: Panel) -> None:
        """Focuses a panel; a maximised one hands the screen over to it."""
        if self._arrangement.maximised is not None:
            self._maximise(panel)
        elif panel.display:
            panel.focus()

    def action_focus_named(self, name: str) -> None:
        if name in ("pool", "request") and self._arrangement.swap(shows_request=name == "request"):
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
        elif self._arrangement.maximised is not None:
            self._maximise(None)
        elif not self.kvscope.finding.end():
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
        self._arrangement.is_prompt_open = True
        self._arrange()
        self.prompt.focus()

    @on(PromptLine.Left)
    def _close_prompt(self) -> None:
        self._arrangement.is_prompt_open = False
        self._arrange()
        (self._arrangement.maximised or self.queues_panel).focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._tell_keys()

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        self._tell_keys()

    def _tell_keys(self) -> None:
        """The footer tells the keys of what has the focus."""
        if self.prompt.has_focus:
            self.footer.tell(prompt_keys(self.kvscope.keys), are_shown=True)
        else:
            self.footer.tell(KEYS if self._is_live else REPLAY_KEYS)

    @property
    def more_help(self) -> Sequence[KeyHelp]:
        return prompt_help(self.kvscope.keys) if self._is_live else ()

    def show(self) -> None:
        self.prompt_bar.show()
        super().show()

    # Mouse

    @on(LinesView.Followed)
    def _follow(self, message: LinesView.Followed) -> None:
        """One click selects, two open."""
        target, places = message.target, self.kvscope.places
        if message.chain > 1 and target.kind == "request":
            places.open_request(target.key)
        elif message.chain > 1 and target.kind == "block":
            places.open_block(int(target.key))
        else:
            self.kvscope.navigation.follow(target)

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
