"""The state after any step: one state that is folded forward, and thrown away for a checkpoint where that is nearer.

Knows no storage: events and checkpoints come from a `StateSource`.
"""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from kvscope.errors import RecordingError
from kvscope.events import Event
from kvscope.state import EngineState

_MAX_REMEMBERED_STEPS = 256
"""Events of steps folded lately: a step back folds them again, and need not fetch them again."""

_CHECKPOINT_COSTS_STEPS = 24
"""Decoding a checkpoint takes about as long as folding so many steps."""

_STOP_EVERY_STEPS = 12
"""A state is kept at least so many steps behind another: copying one costs about as much as folding so many steps whose
events are remembered, and more where little of it is in the processor's caches."""

_LONGEST_STEP = 12
"""Who goes so far at once is taken to walk: keys move by one or ten steps, and whoever follows an engine by a few. On
the way back soon further; on the way forwards a step back may come."""

_FAR_STEPS = 2 * _STOP_EVERY_STEPS
"""From a state that is nearer a step is folded on without keeping more."""

_STOPS_ON_A_WAY = 7
"""A longer way has them further apart."""

_MAX_STOPS = 12
"""Kept states, about a megabyte each where the pool has 32,768 blocks."""


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
        """Copies made while walking, or prepared."""

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

    def prepare(self, step: int) -> None:
        """Makes a later look at a step, or at one shortly before it, quick. The state of the last `at` stays valid.

        Silent where the recording is damaged, or closed by now: the look itself will say so.
        """
        with suppress(RecordingError), _collector_paused():
            start = self._source.checkpoint_step_before(step)
            stop = self._stop_before(step, start)
            if stop is None or step - stop.step > _FAR_STEPS:
                self._folded_with_stops(self._beginning(stop, start), step)

    def _moved(self, state: EngineState | None, step: int) -> EngineState:
        """Returns the state after a step, by the shortest way."""
        start = self._source.checkpoint_step_before(step)  # before it: a step's own facts come from its events
        if state is not None and start - _CHECKPOINT_COSTS_STEPS <= state.step < step:
            if step <= state.step + _LONGEST_STEP:
                self._keep_behind(state)
            return self._folded(state, step)
        walks_back = state is not None and step < state.step <= step + _LONGEST_STEP
        stop = self._stop_before(step, start)
        is_near = stop is not None and step - stop.step <= _FAR_STEPS
        state = self._beginning(stop, start)
        return self._folded_with_stops(state, step) if walks_back and not is_near else self._folded(state, step)

    def _beginning(self, stop: EngineState | None, start: int) -> EngineState:
        """Returns a new state: a copy of a kept one, or as the checkpoint at `start` has it."""
        return self._source.state_at_checkpoint(start) if stop is None else stop.copy()

    def _stop_before(self, step: int, start: int) -> EngineState | None:
        """Returns the last kept state before a step, None where the checkpoint at `start` is sooner folded on."""
        stops = (stop for stop in self._stops if stop.step < step)
        last = max(stops, key=lambda stop: stop.step, default=None)
        return last if last is not None and start - last.step <= _CHECKPOINT_COSTS_STEPS else None

    def _keep_behind(self, state: EngineState) -> None:
        """Keeps a copy of a state that is about to be left forwards, where none is kept shortly behind it."""
        if not any(0 <= state.step - stop.step < _STOP_EVERY_STEPS for stop in self._stops):
            self._keep(state, state.step)

    def _keep(self, state: EngineState, step: int) -> None:
        """Keeps a copy; too many of them lose the one farthest from a step."""
        self._stops.append(state.copy())
        self._stops.sort(key=lambda stop: abs(stop.step - step))
        del self._stops[_MAX_STOPS:]

    def _folded(self, state: EngineState, step: int) -> EngineState:
        """Folds a state on to a step and returns it."""
        for folded, events in self._steps(state.step + 1, step):
            state.apply_step(folded, events)
        return state

    def _folded_with_stops(self, state: EngineState, step: int) -> EngineState:
        """Folds a state on to a step and returns it. Keeps copies on the way, and of the others those near it."""
        begin = state.step
        every = max(_STOP_EVERY_STEPS, -(-(step - begin) // _STOPS_ON_A_WAY))
        for folded, events in self._steps(begin + 1, step):
            if (folded - 1 - begin) % every == 0 and all(stop.step != state.step for stop in self._stops):
                self._keep(state, step)
            state.apply_step(folded, events)
        return state

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
    """A pool's worth of new tuples would set off one garbage collection after another, for nothing.

    In the main thread alone: the switch is the process's, and another thread would put it back to what it was when that
    thread began, whatever the main thread has decided since."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_collecting:
            gc.enable()
