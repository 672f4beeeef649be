"""Real events to record: the scheduler over golden workloads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.engine.scheduling.scripted_run import ScriptedRun
from kvscope.events import Event, EventSink
from kvscope.recording import Recorder
from kvscope.recording.writer import CheckpointPolicy
from tests.builders import ListSink
from tests.golden import golden_runs

Steps = Sequence[tuple[int, Sequence[Event]]]

OFTEN = CheckpointPolicy(work=250, deltas_per_base=3)
"""Checkpoints every other step of a small run, complete ones and such that refer to another."""

BUSY_RUNS = ("rand1000", "rand1004", "rand1010", "rand1015", "rand1021", "rand1028")
"""Preemptions, hits, evictions, duplicates, drafts, aborts between and during steps."""


@cache
def golden_steps(name: str, kind: str = "random") -> Steps:
    """Returns the events of a golden workload, step by step."""
    sink = ListSink()
    ScriptedRun(parse_scenario(golden_runs(kind)[name]), sink).run()
    return tuple(sink.steps)


def write(sink: EventSink, steps: Steps) -> None:
    """Hands the steps to a sink."""
    for step, events in steps:
        sink.write_step(step, events)


def record(path: Path, steps: Steps, checkpoints: CheckpointPolicy = OFTEN) -> Path:
    """Writes a recording and returns its path."""
    with Recorder(path, checkpoints=checkpoints) as recorder:
        write(recorder, steps)
    return path
