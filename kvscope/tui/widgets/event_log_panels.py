"""The panels of the event log: the list, of which only what is seen is drawn, and the chosen event in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvscope.tui.event_log import EventLog
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.event_log import event_lines, filter_words, log_lines
from kvscope.tui.view.lines import Line, Span, Target
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.panel import Panel


class EventLogPanel(JumpPanel):
    """The events in their order; `j k` choose one, enter goes there."""

    def __init__(self, model: ScreenModel, log: EventLog, chosen: Callable[[], None], *, is_ascii: bool) -> None:
        """`chosen` is called when another event was chosen."""
        super().__init__(model, id="events", is_ascii=is_ascii)
        self._log = log
        self._chosen = chosen
        self._seen = range(0)

    def build(self, width: int, height: int) -> Sequence[Line]:
        model, log, room = self.model, self._log, max(height - 1, 1)
        if model.timeline is None or model.walk.whole is None:
            return [self.title("EVENTS", (), width), (Span(" no step yet", "dim"),)]
        self._seen = log.shown(model.timeline, room)
        title = self.title("EVENTS", filter_words(log.chosen, width), width, self._progress())
        if not self._seen:
            return [title, (Span(" …" if log.is_reading else " no such event", "dim"),)]
        number = model.walk.number
        return [
            title,
            *log_lines(
                log.lines[self._seen.start : self._seen.stop],
                log.current - self._seen.start,
                None if number is None else (model.step, number),
                width,
                len(str(max(model.last_step, 0))),
                model.glyphs,
                is_focused=self.has_focus,
            ),
        ]

    def _progress(self) -> Line:
        log = self._log
        if log.error:
            return (Span(log.error, "bad"),)
        if log.is_reading and log.read_step is not None:
            return (Span(f"looking, at step {log.read_step:,}", "dim"),)
        line = log.line
        return () if line is None else (Span(f"{line.number} of {line.num_events} of step {line.step}", "dim"),)

    @property
    def target(self) -> Target | None:
        line = self._log.line
        return None if line is None else Target("event", f"{line.step} {line.number}")

    def walk(self, offset: int) -> None:
        self._log.walk(offset)
        self._chosen()

    def choose_row(self, row: int) -> None:
        self._log.choose(self._seen.start + row - 1)
        self._chosen()


class EventPanel(Panel):
    """The chosen event in full."""

    def __init__(self, model: ScreenModel, log: EventLog, *, is_ascii: bool) -> None:
        super().__init__(model, id="event", is_ascii=is_ascii)
        self._log = log

    def build(self, width: int, height: int) -> Sequence[Line]:
        line = self._log.line
        words = () if line is None else (Span(type(line.event).__name__, "bold"),)
        return [self.title("EVENT", words, width), *event_lines(line, width, height - 1)]
