"""Runs a scenario through the scheduler: recorded, checked and dumped as the caller wishes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvscope.analysis.check import Checker, Violation
from kvscope.engine.scheduling.scenario import Scenario
from kvscope.engine.scheduling.scripted_run import Outcome, ScriptedRun
from kvscope.events import Event, EventSink
from kvscope.recording.recorder import Recorder
from kvscope.replay.dump import StepRecord, dump_steps
from kvscope.state import EngineState


@dataclass(slots=True)
class Simulation:
    """What a run came to."""

    outcome: Outcome
    violations: list[Violation] = field(default_factory=list)
    """Empty where nothing was checked."""


class _Tee:
    """Hands every step to several sinks."""

    def __init__(self, sinks: Sequence[EventSink]) -> None:
        self._sinks = sinks
        self.is_recording = bool(sinks)

    def write_step(self, step: int, events: Sequence[Event]) -> None:
        for sink in self._sinks:
            sink.write_step(step, events)


class _CheckingSink:
    """Holds every step against the invariants."""

    is_recording = True

    def __init__(self) -> None:
        self._checker = Checker()
        self.violations: list[Violation] = []

    def write_step(self, step: int, events: Sequence[Event]) -> None:
        self.violations += self._checker.check_step(step, events)


class _DumpingSink:
    """Hands on every step's record."""

    is_recording = True

    def __init__(self, on_record: Callable[[StepRecord], None]) -> None:
        self._on_record = on_record
        self._state = EngineState()

    def write_step(self, step: int, events: Sequence[Event]) -> None:
        for record in dump_steps([(step, events)], self._state):
            self._on_record(record)


def simulate(
    scenario: Scenario,
    *,
    recording: Path | None = None,
    max_steps: int | None = None,
    is_checked: bool = False,
    on_record: Callable[[StepRecord], None] | None = None,
) -> Simulation:
    """Runs the scenario to its end, to where it can make no more progress, or so many steps.

    `recording` must not exist yet; `on_record` gets the record of each step as it ends. Nothing of these costs anything
    where it is not asked for. Raises `RecordingError`.
    """
    checking = _CheckingSink()
    with contextlib.ExitStack() as stack:
        sinks: list[EventSink] = []
        if recording is not None:
            sinks.append(stack.enter_context(Recorder(recording)))
        if is_checked:
            sinks.append(checking)
        if on_record is not None:
            sinks.append(_DumpingSink(on_record))
        outcome = ScriptedRun(scenario, _Tee(sinks)).run(max_steps)
    return Simulation(outcome, checking.violations)
