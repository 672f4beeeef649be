"""When an engine pauses by itself: the conditions of `control.StopCondition`, evaluated on the events of each step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import get_args

from kvscope.control import StopCondition
from kvscope.errors import UsageError
from kvscope.events import Event

EVENT_KINDS = tuple(kind.__name__ for kind in get_args(Event))


class StopConditions:
    """A set of conditions. Those with a step are dropped once they have held."""

    def __init__(self, conditions: Sequence[StopCondition]) -> None:
        """Raises `UsageError` for an event kind that does not exist, and for a condition that asks for nothing."""
        for condition in conditions:
            if condition.event is not None and condition.event not in EVENT_KINDS:
                nearest = difflib.get_close_matches(condition.event, EVENT_KINDS, n=1, cutoff=0)
                raise UsageError(f"no event is called {condition.event!r}: did you mean {nearest[0]}?")
            if condition == StopCondition():
                raise UsageError("a stop condition needs an event, a request, a step or is_stalled")
        self._conditions = list(conditions)

    def holding(self, step: int, events: Sequence[Event], *, is_stalled: bool) -> str | None:
        """Returns what to say of the first condition that holds after this step, None where none does."""
        for condition in self._conditions:
            if reason := _reason(condition, step, events, is_stalled=is_stalled):
                if condition.step is not None:
                    self._conditions.remove(condition)
                return reason
        return None


def _reason(condition: StopCondition, step: int, events: Sequence[Event], *, is_stalled: bool) -> str | None:
    if condition.step is not None and step < condition.step:
        return None
    if condition.is_stalled and not is_stalled:
        return None
    if condition.event is None and condition.request_id is None:
        return f"nothing was scheduled in step {step}" if condition.is_stalled else f"step {step} reached"
    for event in events:
        kind = type(event).__name__
        if condition.event not in (None, kind):
            continue
        if condition.request_id is None:
            return f"{kind} in step {step}"
        if condition.request_id in request_ids(event):
            return f"{kind} of {condition.request_id} in step {step}"
    return None


def request_ids(event: Event) -> Iterable[str]:
    """Returns the requests that an event is about; for a preemption the victim, not whom it was made for."""
    if (one := getattr(event, "request_id", None)) is not None:
        return (one,)
    return getattr(event, "request_ids", ())
