"""The state after any step: one state that is folded forward, and thrown away for a checkpoint where that is nearer.

Knows no storage: events and checkpoints come from a `StateSource`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol

from kvscope.events import Event
from kvscope.state import EngineState

_MAX_REMEMBERED_STEPS = 256
"""Events of steps folded lately: a step back folds them again, and need not fetch them again."""

_CHECKPOINT_COSTS_STEPS = 24
"""Decoding a checkpoint takes about as long as folding so many steps."""


class StateSource(Protocol):
    """Where a cursor gets its facts from."""

    def steps(self, first_step: int, last_step: int) -> Iterator[tuple[int, Sequence[Event]]]:
        """Yields the steps, both ends included."""
        ...

    def checkpoint_step_before(self, step: int) -> int:
        """Returns the step of the last checkpoint before a step, -1 where there is none."""
        ...

    def state_at_checkpoint(self, step: int) -> EngineState:
        """Returns a new state as the checkpoint of that step has it; of step -1 the state at the start."""
        ...


class StateCursor:
    """Moves through a recording and holds one state."""

    def __init__(self, source: StateSource) -> None:
        self._source = source
        self._state: EngineState | None = None
        self._events: OrderedDict[int, Sequence[Event]] = OrderedDict()

    def at(self, step: int) -> tuple[EngineState, Sequence[Event]]:
        """Returns the state after a step, and its events. The state is the cursor's own until the next call.

        Raises `StateError` where an event contradicts the state, and what the source raises.
        """
        state = self._state
        if state is None or state.step != step or step not in self._events:
            start = self._source.checkpoint_step_before(step)  # before it: a step's own facts come from its events
            if state is None or not start - _CHECKPOINT_COSTS_STEPS <= state.step < step:
                state = self._source.state_at_checkpoint(start)
            self._state = None  # stays so where an event is damaged: a half-folded state is no state
            for folded, events in self._steps(state.step + 1, step):
                state.apply_step(folded, events)
            self._state = state
        return state, self._events[step]

    def _steps(self, first_step: int, last_step: int) -> Iterator[tuple[int, Sequence[Event]]]:
        """Yields the steps, those remembered without asking for them."""
        step = first_step
        while step <= last_step:
            if step in self._events:
                self._events.move_to_end(step)
                yield step, self._events[step]
                step += 1
                continue
            end = step
            while end < last_step and end + 1 not in self._events:
                end += 1
            for fetched, events in self._source.steps(step, end):
                self._events[fetched] = events
                while len(self._events) > _MAX_REMEMBERED_STEPS:
                    self._events.popitem(last=False)
                yield fetched, events
            step = end + 1
