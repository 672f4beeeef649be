"""Who shared the steps of a request's prefill, and who waited because these steps' budget was used up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvscope.analysis.step_facts import StepShare
from kvscope.analysis.why.journal import StepNote
from kvscope.analysis.why.slow_records import BesidePrefill


class PrefillNeighbours:
    """Collects them over the steps of one request's life."""

    def __init__(self) -> None:
        self._shared: dict[str, list[int]] = {}
        self._waited: dict[str, list[int]] = {}

    def add(self, note: StepNote, shares: Mapping[str, StepShare], waiting: Iterable[str]) -> None:
        """Takes the next step; `waiting` is the queue when its admission stopped."""
        if note.share is None or not note.share.is_prefill:
            return
        for request_id in shares:
            if request_id != note.share.request_id:
                self._shared.setdefault(request_id, []).append(note.step)
        if note.stop == "budget":
            for request_id in waiting:
                self._waited.setdefault(request_id, []).append(note.step)

    @property
    def records(self) -> tuple[BesidePrefill, ...]:
        """Those who shared steps before those who only waited, each in the order in which the steps named them."""
        return tuple(
            BesidePrefill(
                request_id=request_id,
                shared_steps=tuple(self._shared.get(request_id, ())),
                steps_without_budget=tuple(self._waited.get(request_id, ())),
            )
            for request_id in dict.fromkeys((*self._shared, *self._waited))
        )
