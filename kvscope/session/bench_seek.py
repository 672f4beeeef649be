"""Opens a recording as a screen does, and seeks in it: how long that takes, and whether memory grows.

No screen: `bench tui` has that. Times are of the wall clock, and beside them of this process's processor, which a
machine that others use disturbs less.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kvscope.replay import open_recording
from kvscope.replay.timeline import Timeline
from kvscope.session.bench_terminal import resident_bytes

_NUM_COLUMNS = 200
"""Of the timeline, at a zoom that holds the whole recording."""
_NUM_OPENS = 5
_SEEKS_A_REPORT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekTimes:
    """What a recording took; milliseconds."""

    num_steps: int
    open_ms: list[float]
    """From the path to the last step's state and the whole timeline, each time anew."""
    wall_ms: dict[str, list[float]]
    """Of each way: `any` step, one `back`, `on`, ten back (`back10`), ten on (`on10`)."""
    cpu_ms: dict[str, list[float]]
    rss_before_bytes: int
    """After a few seeks, which load what stays."""
    rss_after_bytes: int
    """After all of them; 0 where the system does not tell."""


def measure_seeks(path: Path, num_seeks: int, on_seek: Callable[[int, int], None]) -> SeekTimes:
    """Returns the times of so many seeks of each kind. Raises `RecordingError`."""
    open_ms = [_timed_open(path) for _ in range(_NUM_OPENS)]
    with open_recording(path) as timeline:
        last = timeline.last_step
        chance = random.Random(2)
        middle, few = last // 2, min(num_seeks, max(last // 20, 1))
        ways: dict[str, Iterable[int]] = {
            "any": [chance.randint(0, last) for _ in range(num_seeks)],
            "back": range(middle, middle - few, -1),
            "on": range(middle, middle + few),
            "back10": [max(middle - 10 * index, 0) for index in range(few)],
            "on10": [min(middle + 10 * index, last) for index in range(few)],
        }
        for step in (0, middle, last):
            timeline.at(step)
        before = resident_bytes(os.getpid())
        wall_ms: dict[str, list[float]] = {}
        cpu_ms: dict[str, list[float]] = {}
        num_done = 0
        for name, steps in ways.items():
            wall_ms[name], cpu_ms[name] = [], []
            for step in steps:
                wall, cpu = _timed_seek(timeline, step)
                wall_ms[name].append(wall)
                cpu_ms[name].append(cpu)
                num_done += 1
                if num_done % _SEEKS_A_REPORT == 0:
                    on_seek(num_done, num_seeks + 4 * few)
        gc.collect()
        return SeekTimes(
            num_steps=last + 1,
            open_ms=open_ms,
            wall_ms=wall_ms,
            cpu_ms=cpu_ms,
            rss_before_bytes=before,
            rss_after_bytes=resident_bytes(os.getpid()),
        )


def _timed_open(path: Path) -> float:
    begin = time.perf_counter()
    with open_recording(path) as timeline:
        last = timeline.last_step
        width = next(
            width
            for power in range(12)
            for width in (10**power, 2 * 10**power, 5 * 10**power)
            if width * _NUM_COLUMNS > last
        )
        timeline.summaries(0, _NUM_COLUMNS, width)
        timeline.at(last)
        return (time.perf_counter() - begin) * 1e3


def _timed_seek(timeline: Timeline, step: int) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    timeline.at(step)
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3
