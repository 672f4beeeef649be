"""The state after any step: one state that is folded forward, and thrown away for a checkpoint where that is nearer.

Knows no storage: events and checkpoints come from a `StateSource`.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from kvscope.events import Event
from kvscope.state import EngineState

_MAX_REMEMBERED_STEPS = 256
"""Events of steps folded lately: a step back folds them again, and need not fetch them again."""

_CHECKPOINT_COSTS_STEPS = 24
"""Decoding a checkpoint takes about as long as folding so many steps."""

_STOP_EVERY_STEPS = 12
"""A state is kept every so many steps on the way to a step further back: copying one costs about as much as folding so
many steps, and a fraction of decoding a checkpoint."""

_MAX_STOPS = 3
"""Kept states: a few megabytes each where the pool is large."""

_KEPT_STEPS = (_MAX_STOPS - 1) * _STOP_EVERY_STEPS


class StateSource(Protocol):
    """Where a cursor gets its facts from."""

    def steps(self, first_step: int, last_step: int) -> Iterator[tuple[int, Sequence[Event]]]:
        """Yields the steps, both ends included."""
        ...

    def checkpoint_step_before(self, step: int) -> int:
        """Returns the step of the last checkpoint before a step, -1 where there is none."""
        ...

    def state_at_checkpoint(self, step: int) -> EngineState:
        """Returns a new state as the checkpoint of that step has it, or as an earlier one where it is damaged.

        Of step -1 the state at the start.
        """
        ...


class StateCursor:
    """Moves through a recording and holds one state."""

    def __init__(self, source: StateSource) -> None:
        self._source = source
        self._state: EngineState | None = None
        self._events: OrderedDict[int, Sequence[Event]] = OrderedDict()
        self._stops: list[EngineState] = []
        """Copies made on the last way back, the latest step last."""

    def at(self, step: int) -> tuple[EngineState, Sequence[Event]]:
        """Returns the state after a step, and its events. The state is the cursor's own until the next call.

        Raises `StateError` where an event contradicts the state, and what the source raises.
        """
        state = self._state
        if state is None or state.step != step or step not in self._events:
            self._state = None  # stays so where an event is damaged: a half-folded state is no state
            with _collector_paused():
                state = self._moved(state, step)
            self._state = state
        return state, self._events[step]

    def _moved(self, state: EngineState | None, step: int) -> EngineState:
        """Returns the state after a step, by the shortest way."""
        start = self._source.checkpoint_step_before(step)  # before it: a step's own facts come from its events
        walks_back = state is not None and step < state.step <= step + _STOP_EVERY_STEPS
        if state is None or not start - _CHECKPOINT_COSTS_STEPS <= state.step < step:
            state = self._stop_before(step, start) or self._source.state_at_checkpoint(start)
            if walks_back:
                self._keep(state)
        for folded, events in self._steps(state.step + 1, step):
            state.apply_step(folded, events)
            if walks_back and folded % _STOP_EVERY_STEPS == 0 and folded < step < folded + _KEPT_STEPS:
                self._keep(state)
        return state

    def _stop_before(self, step: int, start: int) -> EngineState | None:
        """Returns a copy of the last kept state before a step, None where the checkpoint at `start` is as near."""
        stops = [stop for stop in self._stops if start <= stop.step < step]
        return stops[-1].copy() if stops else None

    def _keep(self, state: EngineState) -> None:
        """Keeps a copy; those that are kept already and near stay with it."""
        if all(stop.step != state.step for stop in self._stops):
            near = [stop for stop in self._stops if abs(stop.step - state.step) <= _KEPT_STEPS]
            self._stops = sorted([*near, state.copy()], key=lambda stop: stop.step)[:_MAX_STOPS]

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


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A pool's worth of new tuples would set off one garbage collection after another, for nothing."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_collecting:
            gc.enable()
