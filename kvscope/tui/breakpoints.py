"""Breakpoints: conditions at which a live engine pauses by itself, and to which a replay runs, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from kvscope.analysis.conditions import Condition, ConditionError, Stop, StopSearch, parse_condition
from kvscope.analysis.searched import Searched
from kvscope.analysis.text import visible
from kvscope.control import SetStopConditions, StopCondition
from kvscope.errors import KvscopeError
from kvscope.events import RequestPreempted
from kvscope.replay.timeline import Timeline
from kvscope.tui.desk import OpenTimeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.breakpoints import BreakpointsModal
from kvscope.tui.slices import in_slices

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

MAX_BREAKPOINTS = 50

STOPPED = "breakpoint: "
"""How the engine begins to say why it paused, before the condition as it was sent."""


@dataclass(slots=True)
class Breakpoint:
    """One condition of the list."""

    condition: Condition
    is_enabled: bool = True


class Breakpoints:
    """The list, the engine that keeps to it, and the runs of a replay."""

    def __init__(self, app: KvscopeApp, open_timeline: OpenTimeline | None) -> None:
        self._app = app
        self._open_timeline = open_timeline
        self._worker: Worker[None] | None = None
        self._selected_at: tuple[str, int] | None = None
        """The recording and the step of the last stop of a live engine whose request was selected."""
        self.all: list[Breakpoint] = []

    @property
    def _model(self) -> ScreenModel:
        return self._app.model

    @property
    def enabled(self) -> list[Condition]:
        return [one.condition for one in self.all if one.is_enabled]

    def open(self) -> None:
        """Opens the list."""
        self._app.push_screen(BreakpointsModal(self, is_ascii=self._app.is_ascii))

    def add(self, text: str) -> ConditionError | None:
        """Adds a condition; returns what is wrong with it. One that is there already is only turned on."""
        try:
            condition = parse_condition(text)
            if len(self.all) >= MAX_BREAKPOINTS:
                raise ConditionError(text, 0, f"there are {MAX_BREAKPOINTS} breakpoints already: remove one first")
        except ConditionError as error:
            return error
        same = next((one for one in self.all if one.condition.text == condition.text), None)
        if same is None:
            self.all.append(Breakpoint(condition))
        else:
            same.is_enabled = True
        self.tell_engine()
        return None

    def toggle(self, index: int) -> None:
        """Turns one on or off."""
        self.all[index].is_enabled = not self.all[index].is_enabled
        self.tell_engine()

    def remove(self, index: int) -> None:
        """Takes one off the list."""
        del self.all[index]
        self.tell_engine()

    def tell_engine(self) -> None:
        """Sends the list: the engine holds it against each of its steps, and pauses by itself."""
        if self._model.control is not None:
            conditions = tuple(StopCondition(expression=condition.text) for condition in self.enabled)
            self._app.run_worker(self._app.engine.send(SetStopConditions(conditions=conditions)), group="breakpoints")

    def look(self) -> None:
        """Selects for whom a condition stopped the live engine, once its step can be read, where the end is shown."""
        model = self._model
        status, timeline = model.status, model.timeline
        if status is None or timeline is None or status.phase != "paused" or not status.detail.startswith(STOPPED):
            return
        stopped_at = (status.recording, status.step)
        if stopped_at == self._selected_at or not model.is_following or model.last_step != status.step:
            return
        self._selected_at = stopped_at
        try:
            condition = parse_condition(status.detail.removeprefix(STOPPED))
            pieces = list(StopSearch(timeline, condition).forwards(status.step, status.step))
        except KvscopeError:  # set by another screen, in words that this one does not know
            return
        model.load()
        self._select_for([one for piece in pieces if isinstance(piece, Stop) for one in piece.request_ids])
        self._app.show_soon()

    def _select_for(self, request_ids: Sequence[str]) -> None:
        """Selects the first of those for whom a condition holds; of a condition on the step, whom it preempted."""
        model = self._model
        events = () if model.moment is None else model.moment.events
        victims = [event.request_id for event in events if isinstance(event, RequestPreempted)]
        model.select(next(iter((*request_ids, *victims)), None))

    # Replay

    @property
    def is_running(self) -> bool:
        """A run to the next breakpoint is under way."""
        return self._worker is not None and not self._worker.is_finished

    def run(self, direction: int) -> None:
        """Runs to the next step at which a breakpoint stops (or the one before)."""
        self.leave()
        timeline = self._model.timeline
        if timeline is None or self._model.step < 0:
            return
        if not self.enabled:
            self._app.say(f"there is no breakpoint: {self._app.keys.shown('b')} sets one")
            return
        self._worker = self._app.run_worker(self._run(timeline, self._model.wanted_step, direction), group="run")

    def leave(self) -> bool:
        """Ends a run that is under way; the cursor has not moved. False where none was."""
        if not self.is_running:
            return False
        assert self._worker is not None
        self._worker.cancel()
        self._worker = None
        self._say("")
        return True

    async def _run(self, timeline: Timeline, step: int, direction: int) -> None:
        best: Stop | None = None
        work = partial(_nearest, conditions=self.enabled, step=step, direction=direction)
        try:
            async for pieces in in_slices(timeline, self._open_timeline, work):
                for piece in pieces:
                    if isinstance(piece, Stop):
                        best = piece
                    else:
                        self._say(f"running to a breakpoint: step {piece.step}, {self._app.keys.shown('space')} stops")
        except KvscopeError as error:
            self._say("")
            self._app.say(error.message, is_error=True)
            return
        except asyncio.CancelledError:
            self._say("")
            raise
        self._worker = None
        if best is None:
            self._say("")
            self._app.say(f"no breakpoint {'after' if direction > 0 else 'before'} step {step}")
        else:
            self._reached(best)

    def _reached(self, stop: Stop) -> None:
        self._app.navigation.remember()
        self._app.navigation.arrive(stop.step)
        self._select_for(stop.request_ids)
        self._model.note = (stop.step, f"breakpoint: {visible(stop.condition.text)}")
        self._model.version += 1

    def _say(self, text: str) -> None:
        """Shows in the header how far it is, as long as the cursor stays."""
        self._model.note = (self._model.step, text) if text else None
        self._model.version += 1
        self._app.show_soon()


def _nearest(timeline: Timeline, conditions: list[Condition], step: int, direction: int) -> Iterator[Stop | Searched]:
    """Yields stops, each nearer than the one before: the last one is the nearest of all conditions."""
    first, last = (step + 1, timeline.last_step) if direction > 0 else (timeline.first_step, step - 1)
    for condition in conditions:
        search = StopSearch(timeline, condition)
        for piece in search.forwards(first, last) if direction > 0 else search.backwards(first, last):
            yield piece
            if isinstance(piece, Stop):
                first, last = (first, piece.step - 1) if direction > 0 else (piece.step + 1, last)
                break
