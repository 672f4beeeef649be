"""The recordings that benchmarks read: made once by the scheduler itself, kept in the cache folder.

`service_day` is the long one: a million steps of `ServiceDay`. `full_screen` is short and wide: 256 requests decode in
a pool of 32,768 blocks, and every allocation evicts a cached block.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from kvscope.recording import Recorder
from kvscope.recording.schema import FORMAT_VERSION
from kvscope.session.bench_load import Load, ServiceDay, SteadyDecode
from kvscope.session.recordings_folder import remove_recording

NUM_STEPS = 1_000_000
NUM_FULL_SCREEN_STEPS = 4_000
_RECIPE = 1
"""Raised with whatever changes the steps that come out: an old file is then no longer taken."""
_STEPS_A_REPORT = 500
_NUM_FIRST_STEPS = 100
"""In which the first requests arrive."""

OnStep = Callable[[int, int], None]
"""Hears now and then how many steps are done, and of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A recording to read, and what making it took; nothing where it was there already."""

    path: Path
    num_steps: int
    wall_s: float | None = None
    num_requests: int | None = None
    num_tokens: int | None = None
    num_preemptions: int | None = None
    fewest_running: int | None = None
    """After the first steps, in which the first requests arrive."""
    num_bytes: int = 0


def service_day(num_steps: int = NUM_STEPS, path: Path | None = None, *, on_step: OnStep) -> Made:
    """Returns the long recording; makes it where it is not there. Raises `RecordingError` where that fails."""
    return _recorded(ServiceDay, path or _cached_path("service-day", num_steps), num_steps, on_step)


def full_screen(num_running: int = 256, num_steps: int = NUM_FULL_SCREEN_STEPS, *, on_step: OnStep) -> Made:
    """Returns the short recording; makes it where it is not there. Raises `RecordingError` where that fails."""
    path = _cached_path(f"full-screen-{num_running}", num_steps)
    return _recorded(lambda: SteadyDecode(num_running), path, num_steps, on_step)


def _cached_path(name: str, num_steps: int) -> Path:
    file_name = f"{name}-{num_steps}-format{FORMAT_VERSION}-recipe{_RECIPE}.db"
    return platformdirs.user_cache_path("kvscope") / "bench" / file_name


def _recorded(new_load: Callable[[], Load], path: Path, num_steps: int, on_step: OnStep) -> Made:
    """Returns the recording at a path. It gets its name once it is whole."""
    if path.exists():
        return Made(path=path, num_steps=num_steps, num_bytes=path.stat().st_size)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.stem}-{os.getpid()}.unfinished.db")
    try:
        made = _make(new_load(), unfinished, num_steps, on_step)
        unfinished.rename(path)
    finally:
        remove_recording(unfinished)
    return dataclasses.replace(made, path=path, num_bytes=path.stat().st_size)


def _make(load: Load, path: Path, num_steps: int, on_step: OnStep) -> Made:
    begin = time.perf_counter()
    fewest: int | None = None
    gc.collect()
    gc.freeze()
    try:
        with Recorder(path) as recorder:
            for step in range(num_steps):
                recorder.write_step(step, load.step())
                num_running = len(load.scheduler.running)
                if step >= _NUM_FIRST_STEPS and (fewest is None or num_running < fewest):
                    fewest = num_running
                if step % _STEPS_A_REPORT == 0:
                    on_step(step, num_steps)
    finally:
        gc.unfreeze()
    return Made(
        path=path,
        num_steps=num_steps,
        wall_s=time.perf_counter() - begin,
        num_requests=load.num_requests,
        num_tokens=load.num_tokens,
        num_preemptions=load.num_preemptions,
        fewest_running=fewest,
    )
