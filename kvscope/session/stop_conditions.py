"""When an engine pauses by itself: the conditions of `control.StopCondition`, held against each step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import get_args

from kvscope.analysis.conditions import StepLook, Watch, parse_condition
from kvscope.control import StopCondition
from kvscope.errors import UsageError
from kvscope.events import Event

EVENT_KINDS = tuple(kind.__name__ for kind in get_args(Event))


class StopConditions:
    """A set of conditions. Those with a step are dropped once they have held."""

    def __init__(self, conditions: Sequence[StopCondition], before: StopConditions | None = None) -> None:
        """`before`: the set that this one replaces. An expression of both goes on; what held does not begin anew.

        Raises `UsageError` for an event kind that does not exist, an expression that cannot be read, and a condition
        that asks for nothing.
        """
        for condition in conditions:
            if condition.event is not None and condition.event not in EVENT_KINDS:
                nearest = difflib.get_close_matches(condition.event, EVENT_KINDS, n=1, cutoff=0)
                raise UsageError(f"no event is called {condition.event!r}: did you mean {nearest[0]}?")
            if condition == StopCondition():
                raise UsageError("a stop condition needs an event, a request, a step, is_stalled or an expression")
        known: dict[str, Watch] = {} if before is None else before._watches
        self._conditions = list(conditions)
        self._watches: dict[str, Watch] = {
            expression: known.get(expression) or Watch(parse_condition(expression))
            for condition in conditions
            if (expression := condition.expression) is not None
        }

    def holding(self, look: StepLook, *, is_stalled: bool) -> str | None:
        """Returns what to say of the first condition that holds after this step, None where none does.

        Must be asked after every step.
        """
        reached = {expression for expression, watch in self._watches.items() if watch.stops_at(look)}
        for condition in self._conditions:
            if condition.expression is not None and condition.expression not in reached:
                continue
            if reason := _reason(condition, look.step, look.events, is_stalled=is_stalled):
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
        if condition.expression is not None:
            return f"breakpoint: {condition.expression}"
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
