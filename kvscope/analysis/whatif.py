"""What-if: the recorded workload under other settings, compared with the same workload under its own.

Both runs are simulated, so that what differs comes from the settings and not from the estimate of the step time. That
the simulation is right is checked each time: with the recording's own settings it must give the recording's events.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from kvscope import events as ev
from kvscope.analysis.comparison import Comparison, compare
from kvscope.analysis.run_figures import FIGURE_KINDS, RunFigures, run_figures
from kvscope.analysis.step_time_model import StepTimeModel, fit_step_time
from kvscope.analysis.workload import WORKLOAD_KINDS, Workload, read_workload
from kvscope.analysis.workload_run import Arrivals, RunNotes, WorkloadRun
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.progress import Stuck
from kvscope.engine.settings import scheduler_config
from kvscope.errors import RecordingError, UsageError
from kvscope.replay.timeline import Timeline

ArrivalChoice = Literal["auto", "steps", "time"]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Whether the recording's own settings give the recording again."""

    num_steps: int
    """Steps that were compared, event by event."""
    differs_in_step: int | None
    """The first step with another event; None where all are the same."""


@dataclass(slots=True, kw_only=True)
class WhatIf:
    """A recording's workload under its own settings (`base`) and under others."""

    settings: dict[str, tuple[Any, Any]]
    """What was changed: from and to. Empty where nothing was."""
    arrivals: Arrivals
    model: StepTimeModel | None
    """Where times are from; None: the runs have no clock, and figures are in steps."""
    comparison: Comparison
    base_stuck: Stuck | None
    stuck: Stuck | None
    base_notes: RunNotes
    notes: RunNotes
    num_refused_in_recording: int
    """Requests that the recorded engine had refused; they are no part of the workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """The workload under one value of a setting."""

    value: Any
    is_recorded: bool
    """The value that the recording itself had (with the other settings that were given)."""
    figures: RunFigures
    stuck: Stuck | None
    notes: RunNotes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The workload under several values of one setting."""

    name: str
    settings: dict[str, Any]
    """What was set besides."""
    arrivals: Arrivals
    model: StepTimeModel | None
    rows: list[SweepRow]


class WhatIfStudy:
    """A recording made ready to be run under any number of other settings."""

    def __init__(self, timeline: Timeline) -> None:
        """Reads the workload and fits the step time. Raises `RecordingError` where it cannot be repeated."""
        if timeline.last_step < 0:
            raise RecordingError(f"{timeline.path} has no step yet: there is nothing to repeat")
        self._timeline = timeline
        self._last_step = timeline.last_step
        self.workload: Workload = read_workload(timeline.select_events(WORKLOAD_KINDS, 0, self._last_step))
        self.model: StepTimeModel | None = None
        if self.workload.is_timed:
            steps = timeline.select_events(FIGURE_KINDS, 0, self._last_step)
            self.model = fit_step_time(run_figures(steps).steps)

    def config_with(self, settings: Mapping[str, Any]) -> SchedulerConfig:
        """Returns the recorded settings with these instead. Raises `SettingError`."""
        return scheduler_config(self.workload.config.as_settings() | dict(settings))

    def arrivals_for(self, choice: ArrivalChoice, config: SchedulerConfig) -> Arrivals:
        """Returns how arrivals are keyed: "auto" is by time where the run has a clock and a setting is changed.

        Raises `UsageError` where times are asked for and there are none.
        """
        if choice == "time" and self.model is None:
            raise UsageError("--arrivals time needs a run with a clock: this recording is scripted or too short")
        if choice == "auto":
            return "time" if self.model is not None and config != self.workload.config else "steps"
        return choice

    def reproduce(self) -> Reproduction:
        """Runs the workload under its own settings and holds each event against the recorded ones."""
        run = WorkloadRun(self.workload, self.workload.config, max_steps=self._last_step + 1)
        recorded = self._timeline.events(0, self._last_step)
        failed = self.workload.failed_step
        num_steps = 0
        for theirs, ours in zip_longest(recorded, run.steps()):
            step = num_steps
            if step == failed:
                break
            if theirs is None or ours is None or _comparable(theirs[1]) != _comparable(ours[1]):
                return Reproduction(num_steps, step)
            num_steps += 1
        return Reproduction(num_steps, None)

    def run(self, settings: Mapping[str, Any], choice: ArrivalChoice = "auto") -> WhatIf:
        """Runs the workload under its own settings and under the others, and compares them. Raises `UsageError`."""
        own, config = self.workload.config, self.config_with(settings)
        arrivals = self.arrivals_for(choice, config)
        clock = self.model if arrivals == "time" else None
        base = WorkloadRun(self.workload, own, arrivals=arrivals, step_time=clock)
        changed = WorkloadRun(self.workload, config, arrivals=arrivals, step_time=clock)
        comparison = compare(base.steps(), changed.steps())
        return WhatIf(
            settings={
                name: (getattr(own, name), getattr(config, name))
                for name in (entry.name for entry in dataclasses.fields(SchedulerConfig))
                if getattr(own, name) != getattr(config, name)
            },
            arrivals=arrivals,
            model=clock,
            comparison=comparison,
            base_stuck=base.stuck,
            stuck=changed.stuck,
            base_notes=base.notes,
            notes=changed.notes,
            num_refused_in_recording=sum(
                isinstance(event, ev.RequestRejected)
                for agenda in self.workload.agenda.values()
                for event in agenda.before
            ),
        )

    def sweep(
        self, name: str, values: Sequence[Any], settings: Mapping[str, Any], choice: ArrivalChoice = "auto"
    ) -> Sweep:
        """Runs the workload under each value, all with arrivals keyed alike. Raises `UsageError`."""
        configs = [self.config_with({**settings, name: value}) for value in values]
        if choice == "auto":
            choice = "time" if self.model is not None else "steps"
        arrivals = self.arrivals_for(choice, self.workload.config)
        clock = self.model if arrivals == "time" else None
        rows = []
        for config in configs:
            run = WorkloadRun(self.workload, config, arrivals=arrivals, step_time=clock)
            figures = run_figures(run.steps())
            value = getattr(config, name)
            is_recorded = value == getattr(self.workload.config, name)
            rows.append(
                SweepRow(value=value, is_recorded=is_recorded, figures=figures, stuck=run.stuck, notes=run.notes)
            )
        return Sweep(name=name, settings=dict(settings), arrivals=arrivals, model=clock, rows=rows)

    def steps(
        self, settings: Mapping[str, Any], choice: ArrivalChoice = "auto"
    ) -> Iterator[tuple[int, list[ev.Event]]]:
        """Yields the events of the changed run, as an engine with these settings would have recorded them."""
        config = self.config_with(settings)
        arrivals = self.arrivals_for(choice, config)
        clock = self.model if arrivals == "time" else None
        return WorkloadRun(self.workload, config, arrivals=arrivals, step_time=clock).steps()


def _comparable(events: Sequence[ev.Event]) -> list[ev.Event]:
    """Returns what must be the same: everything but clocks, the texts of tokens, and the engine's own description."""
    kept: list[ev.Event] = []
    for event in events:
        match event:
            case ev.EngineConfigured() | ev.TokenTextRecorded() | ev.StepFinished() | ev.StepFailed():
                continue
            case ev.StepStarted():
                kept.append(msgspec.structs.replace(event, time_ns=0))
            case ev.RequestArrived():
                kept.append(msgspec.structs.replace(event, sampling={}))
            case _:
                kept.append(event)
    return kept
