"""The event log as a place: every event of the step and of those around it, of the chosen kinds, of one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from kvscope.analysis.event_log import BATCH_KINDS, KINDS, ROUTINE_KINDS, EventFilter
from kvscope.analysis.event_subjects import block_of, request_of
from kvscope.events import Event
from kvscope.tui.event_log import EventLog
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.modals import ViewModal
from kvscope.tui.screens.place import Place
from kvscope.tui.view.event_log import kind_lines
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import Line, Span, Target, line_width
from kvscope.tui.widgets.event_log_panels import EventLogPanel, EventPanel
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.lines_view import LinesView
from kvscope.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

SHORT_ROWS = 32
NUM_EVENT_ROWS = 8
NUM_SHORT_EVENT_ROWS = 5

Kinds = frozenset[type[Event]]


class LoggedKindsModal(ViewModal[None]):
    """The kinds of events to list: space turns one on or off, `o` lists it alone, `a` all, `d` decisions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss", "close", show=False),
        Binding("e", "dismiss", "close", show=False, id="events.list_kinds"),
        Binding("j,down", "walk(1)", "down", show=False),
        Binding("k,up", "walk(-1)", "up", show=False),
        Binding("pagedown", "walk(10)", "ten rows down", show=False),
        Binding("pageup", "walk(-10)", "ten rows up", show=False),
        Binding("g,home", "walk(-100)", "first", show=False),
        Binding("G,end", "walk(100)", "last", show=False),
        Binding("space", "turn", "on or off", show=False),
        Binding("o", "only", "only this one", show=False),
        Binding("a", "all", "all, or none", show=False),
        Binding("d", "decisions", "decisions: without what every step has", show=False),
    ]

    def __init__(
        self, kinds: Kinds, current: type[Event] | None, put: Callable[[Kinds], None], glyphs: Glyphs, *, is_ascii: bool
    ) -> None:
        """`put` is told the chosen kinds at every change; none of them stands for all."""
        super().__init__()
        self._kinds = kinds
        self._put = put
        self._glyphs = glyphs
        self._current = KINDS.index(current) if current is not None else 0
        self._view = LinesView(id="kinds", is_ascii=is_ascii)

    def _show(self) -> None:
        height = max(self.app.size.height - 8, 1)
        lines: list[Line] = [
            (Span("events to list", "bold"), Span(f"  {len(self._kinds)} of {len(KINDS)} kinds", "dim")),
            *kind_lines(self._kinds, self._current, height, self._glyphs),
            (Span("space on/off  o only  a all/none  d decisions  esc closes", "dim"),),
        ]
        self._view.styles.width = max(map(line_width, lines))
        self._view.styles.height = len(lines)
        self._view.set_lines(lines)

    def action_walk(self, num_rows: int) -> None:
        self._current = min(max(self._current + num_rows, 0), len(KINDS) - 1)
        self._show()

    def action_turn(self) -> None:
        self._choose(self._kinds ^ {KINDS[self._current]})

    def action_only(self) -> None:
        self._choose(frozenset({KINDS[self._current]}))

    def action_all(self) -> None:
        self._choose(frozenset() if len(self._kinds) == len(KINDS) else frozenset(KINDS))

    def action_decisions(self) -> None:
        self._choose(frozenset(KINDS) - ROUTINE_KINDS)

    def _choose(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._put(kinds or frozenset(KINDS))
        self._show()


class EventLogScreen(Place):
    """The events around the step; enter goes to the state behind the chosen one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "kinds", "choose the kinds of events to list", show=False, id="events.list_kinds"),
        Binding("f", "one_request", "only events of the chosen one's request", show=False, id="events.one_request"),
    ]

    KEYS = (
        ("j k", "event"),
        ("⏎", "go there"),
        ("e", "kinds"),
        ("f", "one request"),
        ("← →", "step"),
        ("n N", "event"),
        ("esc", "back"),
        ("?", "help"),
    )

    def __init__(self, app: KvscopeApp, model: ScreenModel, chosen: EventFilter, *, is_ascii: bool) -> None:
        super().__init__(model, is_ascii=is_ascii)
        self.log_lines = EventLog(app, chosen, self._more_to_show)
        self.list = EventLogPanel(model, self.log_lines, self._more_to_show, is_ascii=is_ascii)
        self.event = EventPanel(model, self.log_lines, is_ascii=is_ascii)
        self._is_ascii = is_ascii

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.list
        yield self.event
        yield self.footer

    @property
    def lists(self) -> Sequence[JumpPanel]:
        return (self.list,)

    @property
    def panels(self) -> Sequence[Panel]:
        return (self.list, self.event)

    def divide(self, columns: int, rows: int) -> None:
        num_rows = NUM_SHORT_EVENT_ROWS if rows < SHORT_ROWS else NUM_EVENT_ROWS
        self.list.styles.height = max(rows - num_rows - 2, 1)
        self.event.styles.height = num_rows
        for panel in self.panels:
            panel.invalidate()

    def show(self) -> None:
        self.header.places = (f"step {self.model.step}", "events")
        whole = self.model.walk.whole
        if self.model.timeline is not None and whole is not None:
            self.log_lines.follow(self.model.timeline, whole, self.model.walk.number)
        for panel in self.panels:
            panel.invalidate()
        super().show()

    def follow(self, target: Target) -> None:
        """An event is gone to on the main screen, with its request and block; the list is left for it."""
        if target.kind != "event":
            super().follow(target)
            return
        line = self.log_lines.line
        assert line is not None
        self.kvscope.navigation.remember()
        self.model.move_to_event(line.step, line.number)
        self.model.load()
        self.model.select(request_of(line.event))
        block_id = block_of(line.event)
        if block_id is not None:
            self.model.choose_block(block_id)
        self.close()
        self.kvscope.show_soon()

    def action_kinds(self) -> None:
        """Opens the choice of kinds; the list changes below it."""
        line = self.log_lines.line
        current = None if line is None else type(line.event)
        choice = LoggedKindsModal(
            self.log_lines.chosen.kinds, current, self._list_kinds, self.model.glyphs, is_ascii=self._is_ascii
        )
        self.app.push_screen(choice)

    def _list_kinds(self, kinds: Kinds) -> None:
        self._list(EventFilter(kinds, self.log_lines.chosen.request_id))

    def action_one_request(self) -> None:
        """Lists the events of the chosen event's request alone, or of all again."""
        chosen, line = self.log_lines.chosen, self.log_lines.line
        if chosen.request_id is not None:
            self._list(EventFilter(chosen.kinds))
            return
        is_batch = line is None or type(line.event) in BATCH_KINDS
        request_id = self.model.selected_id if is_batch or line is None else request_of(line.event)
        self._list(EventFilter(chosen.kinds, request_id or self.model.selected_id))

    def _list(self, chosen: EventFilter) -> None:
        """Lists other events around the chosen one: the lines begin anew where it stands."""
        line = self.log_lines.line
        self.log_lines.filter_by(chosen)
        self.kvscope.places.keep_event_filter(chosen)
        if line is not None and line.step != self.model.step:
            self.kvscope.navigation.move_to(line.step)
            self.model.load()
        self.show()

    def end(self) -> None:
        self.log_lines.leave()
