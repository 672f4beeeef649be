"""The state between the events of one step: as it is after each of them, by the same reducer.

Knows no storage: the state before the step comes from a reader of its own, so that the moment that a screen shows
stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.events import Event
from kvscope.replay.timeline import Moment, Moments
from kvscope.state import EngineState


class InsideStep:
    """One step to walk through. Forwards it folds the events that lie between, backwards it begins anew."""

    def __init__(self, before: EngineState, step: int, events: Sequence[Event]) -> None:
        """`before` is the state after the step before. It is read again at each way back, and must stay as it is."""
        self.step = step
        self.events = events
        self._before = before
        self._begin()

    def _begin(self) -> None:
        self._state = self._before.copy()
        self._state.begin_step(self.step)
        self._num_folded = 0

    def after(self, num_events: int) -> Moment:
        """Returns the step as it is after its first `num_events` events. Valid until the next call.

        Raises `StateError` where an event contradicts the state.
        """
        if num_events < self._num_folded:
            self._begin()
        for event in self.events[self._num_folded : num_events]:
            self._state.apply(event)
            self._num_folded += 1
        return Moment(self.step, self._state, self.events[:num_events])


def inside(moments: Moments, moment: Moment, first_step: int) -> InsideStep:
    """Returns the inside of a step, valid until `moments`, which reads the state before it, is asked again.

    The first step begins with an empty state.
    """
    before = moments.at(moment.step - 1).state if moment.step > first_step else EngineState()
    return InsideStep(before, moment.step, moment.events)
