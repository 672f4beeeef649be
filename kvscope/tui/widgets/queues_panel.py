"""Who waits and why, who runs and what each got."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.queue_order import ORDER_WORDS, queue_places
from kvscope.analysis.queue_view import RunningRow, running_rows
from kvscope.analysis.verdicts import WaitingVerdict, verdicts
from kvscope.events import TokensScheduled
from kvscope.replay.timeline import Moment, Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.lines import Line, Span
from kvscope.tui.view.queue_figures import MIN_COLUMNS
from kvscope.tui.view.queues import QueueFacts, QueueSlots, queue_slots, queues_view
from kvscope.tui.widgets.panel import Panel


class QueuesPanel(Panel):
    """The waiting and the running queue; `j k` select a request."""

    IS_OF_STEP = True

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="queues", is_ascii=is_ascii, can_focus=True)
        self._request_ids: Sequence[str | None] = ()

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        order = ORDER_WORDS[model.queue_order]
        title = self.title("QUEUES", (Span(order, "dim"),) if order else (), width)
        status = model.status
        num_submitted = 0 if status is None else status.num_submitted
        if model.moment is None or model.timeline is None:
            self._request_ids = ()
            return [title, *self._without_step(num_submitted)]
        moment = model.moment
        state = moment.state
        max_num_seqs = int(model.config.settings.get("max_num_seqs", 0)) if model.config else 0
        waiting, running = queue_places(moment, model.queue_order)
        slots = queue_slots(
            len(state.waiting),
            len(state.running),
            height - 1,
            max_num_seqs,
            selected_waiting=_row(state.waiting, waiting, model.selected_id),
            selected_running=_row(state.running, running, model.selected_id),
            is_maximised=self.is_maximised,
        )
        facts = QueueFacts(
            num_waiting=len(state.waiting),
            num_running=len(state.running),
            max_num_seqs=max_num_seqs,
            num_submitted=num_submitted,
            verdicts=shown_verdicts(model.timeline, moment, slots, waiting),
            running=shown_running(model.timeline, moment, slots, running),
            is_scheduled=model.walk.number is None
            or any(isinstance(event, TokensScheduled) for event in moment.events),
            figures=state.requests if self.is_maximised and width >= MIN_COLUMNS else {},
        )
        view = queues_view(facts, slots, width, selected_id=model.selected_id, glyphs=model.glyphs)
        self._request_ids = (None, *view.request_ids)
        return [title, *view.lines]

    def _without_step(self, num_submitted: int) -> list[Line]:
        if num_submitted:
            return [(Span(f" {num_submitted} submitted, not in the queue yet", "text"),)]
        if self.model.control is not None:
            return [(Span(" No request yet: type a prompt below", "dim"),)]
        return [(Span(" No request yet", "dim"),)]

    def request_at(self, row: int) -> str | None:
        """Returns the request in a row of the widget."""
        return self._request_ids[row] if 0 <= row < len(self._request_ids) else None


def _row(queue: Sequence[str], places: Sequence[int], request_id: str | None) -> int | None:
    """Returns the row of a request in the list of a queue."""
    return None if request_id is None or request_id not in queue else places.index(queue.index(request_id))


def shown_verdicts(
    timeline: Timeline, moment: Moment, slots: QueueSlots, places: Sequence[int]
) -> dict[int, WaitingVerdict]:
    """Returns the verdicts of the rows that are seen; `places` has the place in the queue of each row."""
    return {row: verdicts(timeline, moment, places[row], 1)[0] for row in slots.waiting if isinstance(row, int)}


def shown_running(
    timeline: Timeline, moment: Moment, slots: QueueSlots, places: Sequence[int]
) -> dict[int, RunningRow]:
    """Returns the running rows that are seen."""
    return {row: running_rows(timeline, moment, places[row], 1)[0] for row in slots.running if isinstance(row, int)}
