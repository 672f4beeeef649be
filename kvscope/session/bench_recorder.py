"""What recording costs: the same work with the recorder on and off, in turns, in one process.

The scripted case decodes 256 requests in a pool of 32,768 blocks; where a model would compute, the thread sleeps, so
that the recorder's own thread runs beside it as in life. With a model its forward pass computes instead.
"""

from __future__ import annotations

import gc
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvscope.events import Event, StepFinished
from kvscope.recording.recorder import Recorder
from kvscope.replay import open_recording
from kvscope.session.bench_load import SteadyDecode

if TYPE_CHECKING:
    from kvscope.engine.model.loader import Model
    from kvscope.session.options import EngineOptions

_NUM_WARM_UP_STEPS = 20
_NUM_PROMPT_TOKENS = 32
OnStep = Callable[[str, int, int], None]
"""Hears the name of a run, how many steps it has done, and of how many."""


@dataclass(slots=True)
class RecorderTimes:
    """Pairs of runs, round by round."""

    on_us: list[float] = field(default_factory=list)
    """Mean time of a step, model included."""
    off_us: list[float] = field(default_factory=list)
    hand_over_us: list[float] = field(default_factory=list)
    """Of every recorded step: how long the engine's thread was busy with handing it over."""
    num_tokens: int = 0
    num_bytes: int = 0
    """Of the largest recording, closed, indexes and checkpoints included; `num_tokens` were generated in it."""

    def add(self, run: _Run, *, is_recording: bool) -> None:
        """Enters a run."""
        (self.on_us if is_recording else self.off_us).append(run.step_us)
        self.hand_over_us += run.hand_over_us
        if run.num_bytes > self.num_bytes:
            self.num_bytes, self.num_tokens = run.num_bytes, run.num_tokens


@dataclass(frozen=True, slots=True)
class _Run:
    step_us: float
    hand_over_us: list[float] = field(default_factory=list)
    num_tokens: int = 0
    num_bytes: int = 0


class _TimedSink:
    """A recorder whose hand-overs are timed."""

    is_recording = True

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.hand_over_us: list[float] = []

    def write_step(self, step: int, events: Sequence[Event]) -> None:
        begin = time.perf_counter_ns()
        self._recorder.write_step(step, events)
        self.hand_over_us.append((time.perf_counter_ns() - begin) / 1e3)

    def close(self) -> None:
        """Writes what is left and closes the recording."""
        self._recorder.close()


def measure_scripted(
    num_pairs: int, num_steps: int, *, forward_ms: float, num_running: int = 256, on_step: OnStep
) -> RecorderTimes:
    """Returns pairs of scripted runs. The recording goes to the folder for temporary files."""
    times = RecorderTimes()
    for pair in range(num_pairs):
        for is_recording in (True, False) if pair % 2 else (False, True):
            name = f"pair {pair + 1} of {num_pairs}, recording {'on' if is_recording else 'off'}"
            run = _scripted_run(num_running, num_steps, forward_ms / 1e3, name, on_step, is_recording=is_recording)
            times.add(run, is_recording=is_recording)
    return times


def _scripted_run(
    num_running: int, num_steps: int, forward_s: float, name: str, on_step: OnStep, *, is_recording: bool
) -> _Run:
    load = SteadyDecode(num_running, is_recording=is_recording)
    with tempfile.TemporaryDirectory(prefix="kv") as folder:
        path = Path(folder) / "bench.db"
        sink = _TimedSink(Recorder(path)) if is_recording else None
        begin = 0.0
        gc.collect()
        for step in range(num_steps + _NUM_WARM_UP_STEPS):
            if step == _NUM_WARM_UP_STEPS:
                begin = time.perf_counter()
            events = load.step()
            if sink is not None:
                sink.write_step(step, events)
            time.sleep(forward_s)
            if step % 50 == 0:
                on_step(name, step, num_steps)
        step_us = (time.perf_counter() - begin) / num_steps * 1e6
        if sink is None:
            return _Run(step_us)
        sink.close()
        return _Run(step_us, sink.hand_over_us, load.num_tokens, path.stat().st_size)


def measure_model(
    options: EngineOptions, num_pairs: int, num_steps: int, *, num_running: int, on_step: OnStep
) -> RecorderTimes:
    """Returns pairs of runs of a model that decodes so many requests. Raises as `load_chosen_model`."""
    from kvscope.session.build import load_chosen_model

    model = load_chosen_model(options, lambda what, progress: on_step(what, 0, 1))
    times = RecorderTimes()
    for pair in range(num_pairs):
        for is_recording in (True, False) if pair % 2 else (False, True):
            name = f"pair {pair + 1} of {num_pairs}, recording {'on' if is_recording else 'off'}"
            run = _model_run(model, options, num_steps, num_running, name, on_step, is_recording=is_recording)
            times.add(run, is_recording=is_recording)
    return times


def _model_run(
    model: Model,
    options: EngineOptions,
    num_steps: int,
    num_running: int,
    name: str,
    on_step: OnStep,
    *,
    is_recording: bool,
) -> _Run:
    from kvscope.engine.llm_engine import Submission
    from kvscope.session.build import build_engine_over

    chance = random.Random(5)
    sampling = {"max_tokens": num_steps + 2 * _NUM_WARM_UP_STEPS, "ignore_eos": True, "temperature": 0.0}
    prompts = [[chance.randrange(1_000, 40_000) for _ in range(_NUM_PROMPT_TOKENS)] for _ in range(num_running)]
    with tempfile.TemporaryDirectory(prefix="kv") as folder:
        path = Path(folder) / "bench.db"
        built = build_engine_over(model, replace(options, recording=str(path) if is_recording else None))
        built.engine.add_requests([Submission(prompt=prompt, sampling=sampling) for prompt in prompts])
        for _ in range(_NUM_WARM_UP_STEPS):
            built.engine.step()
        gc.collect()
        begin = time.perf_counter()
        for step in range(num_steps):
            built.engine.step()
            if step % 10 == 0:
                on_step(name, step, num_steps)
        step_us = (time.perf_counter() - begin) / num_steps * 1e6
        built.close()
        if not is_recording:
            return _Run(step_us)
        return _Run(step_us, _recorded_hand_overs(path), num_steps * num_running, path.stat().st_size)


def _recorded_hand_overs(path: Path) -> list[float]:
    """Returns what each step says of the hand-over of the one before, in µs."""
    with open_recording(path) as timeline:
        steps = timeline.select_events((StepFinished,), 1 + _NUM_WARM_UP_STEPS, timeline.last_step)
        return [event.record_ns / 1e3 for _, events in steps for event in events if isinstance(event, StepFinished)]
