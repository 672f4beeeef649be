"""Who waits and why, who runs and what each got."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.queue_view import RunningRow, running_rows
from kvscope.analysis.verdicts import Verdict, verdicts
from kvscope.replay.timeline import Moment, Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.lines import Line, Span
from kvscope.tui.view.queues import QueueFacts, QueueSlots, queue_slots, queues_view
from kvscope.tui.view.windowing import Slot
from kvscope.tui.widgets.panel import Panel


class QueuesPanel(Panel):
    """The waiting and the running queue; `j k` select a request."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="queues", is_ascii=is_ascii, can_focus=True)
        self._request_ids: Sequence[str | None] = ()

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        title = self.title("QUEUES", (), width)
        status = model.status
        num_submitted = 0 if status is None else status.num_submitted
        if model.moment is None or model.timeline is None:
            self._request_ids = ()
            return [title, *self._without_step(num_submitted)]
        moment = model.moment
        state = moment.state
        max_num_seqs = int(model.config.settings.get("max_num_seqs", 0)) if model.config else 0
        slots = queue_slots(
            len(state.waiting),
            len(state.running),
            height - 1,
            max_num_seqs,
            selected_waiting=_place(state.waiting, model.selected_id),
            selected_running=_place(state.running, model.selected_id),
        )
        facts = QueueFacts(
            num_waiting=len(state.waiting),
            num_running=len(state.running),
            max_num_seqs=max_num_seqs,
            num_submitted=num_submitted,
            verdicts=shown_verdicts(model.timeline, moment, slots),
            running=shown_running(model.timeline, moment, slots),
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


def _place(queue: Sequence[str], request_id: str | None) -> int | None:
    return None if request_id is None or request_id not in queue else queue.index(request_id)


def shown_verdicts(timeline: Timeline, moment: Moment, slots: QueueSlots) -> dict[int, Verdict]:
    """Returns the verdicts of the places that are seen."""
    return {
        first + offset: verdict
        for first, count in runs(slots.waiting)
        for offset, verdict in enumerate(verdicts(timeline, moment, first, count))
    }


def shown_running(timeline: Timeline, moment: Moment, slots: QueueSlots) -> dict[int, RunningRow]:
    """Returns the running rows of the places that are seen."""
    return {
        first + offset: row
        for first, count in runs(slots.running)
        for offset, row in enumerate(running_rows(timeline, moment, first, count))
    }


def runs(slots: Sequence[Slot | object]) -> list[tuple[int, int]]:
    """Returns the row numbers among the slots as runs of (first, count)."""
    found: list[tuple[int, int]] = []
    for slot in slots:
        if not isinstance(slot, int):
            continue
        if found and sum(found[-1]) == slot:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((slot, 1))
    return found
