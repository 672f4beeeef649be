"""What recording costs: the same work with the recorder on and off, in short turns, in one process.

Two engines take the same decisions; one of them is recorded. They take turns of some steps each, so that what slows the
machine for a while slows both. A turn begins with steps that are not timed: what the recorder still has to do for them
falls into the timed ones, as what it has to do for the last timed ones falls behind them. Then the engine waits until
all is on disk, so that the other's turn is its own; how long is kept too, for a recorder that falls behind would hide
there.

The scripted case decodes 256 requests in a pool of 32,768 blocks; where a model would compute, the thread sleeps, so
that the recorder runs beside it as in life. With a model its forward pass computes instead.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from kvscope.errors import RecordingError
from kvscope.events import StepFinished
from kvscope.recording.recorder import Recorder
from kvscope.replay import open_recording
from kvscope.session.bench_load import SteadyDecode

if TYPE_CHECKING:
    from kvscope.engine.model.loader import Model
    from kvscope.session.options import EngineOptions

_NUM_WARM_UP_STEPS = 20
_NUM_PROMPT_TOKENS = 32
_LONGEST_WAIT_S = 60
OnTurn = Callable[[int, int, str], None]
"""Hears how many pairs are done, of how many, and what runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How often, and how long, each takes its turn."""

    num_pairs: int
    num_steps: int
    """Timed, of each turn."""

    @property
    def num_untimed_steps(self) -> int:
        """Before them: as many as fill what is under way in the recorder, a tenth of a second or so."""
        return max(self.num_steps // 8, 1)

    @property
    def num_steps_a_turn(self) -> int:
        return self.num_untimed_steps + self.num_steps

    @property
    def num_steps_in_all(self) -> int:
        """Of each of the two engines."""
        return _NUM_WARM_UP_STEPS + self.num_pairs * self.num_steps_a_turn


@dataclass(slots=True)
class RecorderTimes:
    """Pairs of turns, one after another."""

    on_us: list[float] = field(default_factory=list)
    """Mean time of a step, model included."""
    off_us: list[float] = field(default_factory=list)
    left_ms: list[float] = field(default_factory=list)
    """How long after the last step of each recorded turn all of it was on disk."""
    hand_over_us: list[float] = field(default_factory=list)
    """Of every recorded step: how long the engine's thread was busy with handing it over."""
    num_tokens: int = 0
    num_bytes: int = 0
    """Of the recording, closed, indexes and checkpoints included; `num_tokens` were generated in it."""


class _Engine(Protocol):
    """One of the two."""

    @property
    def num_tokens(self) -> int:
        """Generated so far."""
        ...

    def step(self) -> None:
        """Makes a step, which is handed over where this engine is recorded."""
        ...

    def close(self) -> None:
        """Closes its recording."""
        ...

    def hand_over_us(self) -> list[float]:
        """Returns what each hand-over took; of a recorded engine that is closed."""
        ...


class _ScriptedEngine:
    """The scheduler, and a pause where a model would compute."""

    def __init__(self, num_running: int, forward_s: float, path: Path | None) -> None:
        self._load = SteadyDecode(num_running, is_recording=path is not None)
        self._forward_s = forward_s
        self._recorder = None if path is None else Recorder(path, in_own_process=True)
        self._hand_over_us: list[float] = []

    @property
    def num_tokens(self) -> int:
        return self._load.num_tokens

    def step(self) -> None:
        events = self._load.step()
        if self._recorder is not None:
            begin = time.perf_counter_ns()
            self._recorder.write_step(self._load.num_steps - 1, events)
            self._hand_over_us.append((time.perf_counter_ns() - begin) / 1e3)
        time.sleep(self._forward_s)

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()

    def hand_over_us(self) -> list[float]:
        return self._hand_over_us


class _ModelEngine:
    """A model that decodes requests which end together, after all turns."""

    def __init__(
        self, model: Model, options: EngineOptions, num_running: int, num_steps: int, path: Path | None
    ) -> None:
        from kvscope.engine.input_processor import Submission
        from kvscope.session.build import build_engine_over

        chance = random.Random(5)
        sampling = {"max_tokens": num_steps + 1, "ignore_eos": True, "temperature": 0.0}
        prompts = [[chance.randrange(1_000, 40_000) for _ in range(_NUM_PROMPT_TOKENS)] for _ in range(num_running)]
        self._built = build_engine_over(model, replace(options, recording=None if path is None else str(path)))
        self._built.engine.add_requests([Submission(prompt=prompt, sampling=sampling) for prompt in prompts])
        self._path = path

    @property
    def num_tokens(self) -> int:
        return sum(request.num_output_tokens for request in self._built.engine.scheduler.requests.values())

    def step(self) -> None:
        self._built.engine.step()

    def close(self) -> None:
        self._built.close()

    def hand_over_us(self) -> list[float]:
        """Each step but the first tells what the hand-over of the one before it took."""
        assert self._path is not None
        with open_recording(self._path) as timeline:
            steps = timeline.select_events((StepFinished,), 1 + _NUM_WARM_UP_STEPS, timeline.last_step)
            return [event.record_ns / 1e3 for _, events in steps for event in events if isinstance(event, StepFinished)]


def measure_scripted(turns: Turns, *, forward_ms: float, num_running: int = 256, on_turn: OnTurn) -> RecorderTimes:
    """Returns the times of scripted engines. The recording goes to the folder for temporary files."""
    return _measure(turns, lambda path: _ScriptedEngine(num_running, forward_ms / 1e3, path), on_turn)


def measure_model(options: EngineOptions, turns: Turns, *, num_running: int, on_turn: OnTurn) -> RecorderTimes:
    """Returns the times of a model that decodes so many requests. Raises as `load_chosen_model`.

    The pool is as large as these requests need, twice: there are two engines.
    """
    from kvscope.session.build import load_chosen_model

    model = load_chosen_model(options, lambda what, progress: on_turn(0, turns.num_pairs, what))
    longest = _NUM_PROMPT_TOKENS + turns.num_steps_in_all + 1
    block_size = 16
    settings = {
        "max_num_seqs": num_running,
        "max_model_len": longest,
        "num_gpu_blocks": num_running * (longest // block_size + 1) + 1,
        "block_size": block_size,
        **options.settings,
    }
    options = replace(options, settings=settings)
    return _measure(
        turns, lambda path: _ModelEngine(model, options, num_running, turns.num_steps_in_all, path), on_turn
    )


def _measure(turns: Turns, new_engine: Callable[[Path | None], _Engine], on_turn: OnTurn) -> RecorderTimes:
    times = RecorderTimes()
    with tempfile.TemporaryDirectory(prefix="kv") as folder:
        path = Path(folder) / "bench.db"
        on_turn(0, turns.num_pairs, "warming up")
        with contextlib.ExitStack() as stack:
            on, off = (stack.enter_context(contextlib.closing(new_engine(where))) for where in (path, None))
            for engine in (on, off):
                _time_steps(engine, _NUM_WARM_UP_STEPS)
            with contextlib.closing(sqlite3.connect(path)) as reader, _frozen_objects():
                _wait_until_written(reader, _NUM_WARM_UP_STEPS)
                for pair in range(turns.num_pairs):
                    for is_recorded in (True, False) if pair % 2 else (False, True):
                        on_turn(pair, turns.num_pairs, f"recording {'on' if is_recorded else 'off'}")
                        engine = on if is_recorded else off
                        _time_steps(engine, turns.num_untimed_steps)
                        step_us = _time_steps(engine, turns.num_steps)
                        (times.on_us if is_recorded else times.off_us).append(step_us)
                        if is_recorded:
                            num_steps = _NUM_WARM_UP_STEPS + (pair + 1) * turns.num_steps_a_turn
                            times.left_ms.append(_wait_until_written(reader, num_steps))
        times.hand_over_us, times.num_tokens = on.hand_over_us(), on.num_tokens
        times.num_bytes = path.stat().st_size
    return times


def _time_steps(engine: _Engine, num_steps: int) -> float:
    """Makes steps, and returns their mean in µs."""
    begin = time.perf_counter()
    for _ in range(num_steps):
        engine.step()
    return (time.perf_counter() - begin) / num_steps * 1e6


def _wait_until_written(reader: sqlite3.Connection, num_steps: int) -> float:
    """Waits until so many steps are on disk, and returns how long that took, in ms. Raises `RecordingError`."""
    begin = time.monotonic()
    while reader.execute("SELECT max(step) FROM steps").fetchone() != (num_steps - 1,):
        if time.monotonic() - begin > _LONGEST_WAIT_S:
            raise RecordingError(f"step {num_steps - 1} was not written within {_LONGEST_WAIT_S} s: is the disk full?")
        time.sleep(0.001)
    return (time.monotonic() - begin) * 1e3


@contextlib.contextmanager
def _frozen_objects() -> Iterator[None]:
    """Keeps what there is out of the garbage collector's sight: each engine would otherwise pay for both."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
