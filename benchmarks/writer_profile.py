"""Where the time of recording a step goes, in the writer: the ten largest, by its thread's CPU time.

    python benchmarks/writer_profile.py
    python benchmarks/writer_profile.py --trace mooncake_conversation.jsonl --requests 600

Without a trace 256 requests decode, scripted. The steps are made first and then written, three in a transaction. The
profiler costs more than what it measures: so shares of it are given in the CPU time of a run without it.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kvscope.cli.simulate_trace import _config
from kvscope.events import Event
from kvscope.recording.recorder import create_recording
from kvscope.recording.writer import Step, Writer
from kvscope.session.bench_load import SteadyDecode
from kvscope.session.trace import load_trace
from kvscope.session.trace_run import run_trace

NUM_ROWS = 10
NUM_STEPS = 1_500
STEPS_A_TRANSACTION = 3


class KeptSteps:
    """A sink that keeps what it is given."""

    is_recording = True

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def write_step(self, step: int, events: Sequence[Event]) -> None:
        self.steps.append((step, events))


def made_steps(trace_path: Path | None, num_requests: int) -> list[Step]:
    """Returns the steps to write."""
    if trace_path is None:
        load = SteadyDecode(256)
        return [(step, load.step()) for step in range(NUM_STEPS)]
    trace = load_trace(trace_path, num_requests)
    kept = KeptSteps()
    run_trace(trace, _config(trace, {}), kept)
    return kept.steps


def write(steps: Sequence[Step], profiler: cProfile.Profile | None = None) -> float:
    """Writes a recording of them, and returns the CPU seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "run.db", isolation_level=None, cached_statements=256)
        connection.execute("PRAGMA journal_mode = WAL")
        create_recording(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        writer = Writer(connection)
        begin = time.thread_time()
        if profiler is not None:
            profiler.enable()
        for first in range(0, len(steps), STEPS_A_TRANSACTION):
            writer.write(steps[first : first + STEPS_A_TRANSACTION])
        writer.finish()
        if profiler is not None:
            profiler.disable()
        seconds = time.thread_time() - begin
        connection.close()
        return seconds


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--requests", type=int, default=600)
    arguments = parser.parse_args()
    steps = made_steps(arguments.trace, arguments.requests)
    gc.collect()
    gc.freeze()
    step_us = min(write(steps) for _ in range(3)) / len(steps) * 1e6
    profiler = cProfile.Profile(time.thread_time)
    write(steps, profiler)
    found = pstats.Stats(profiler)
    rows = sorted(found.stats.items(), key=lambda row: row[1][2], reverse=True)  # type: ignore[attr-defined]
    total = sum(row[1][2] for row in rows)
    num_events = sum(len(events) for _, events in steps)
    print(f"{len(steps):,} steps of {num_events / len(steps):.1f} events: {step_us:.0f} µs of CPU time a step\n")
    print("| | % | µs a step | calls a step |\n|---|---:|---:|---:|")
    for (path, _, name), (_, num_calls, own, _, _) in rows[:NUM_ROWS]:
        where = name.strip("{}") if path == "~" else f"{Path(path).stem}.{name}"
        print(f"| `{where}` | {own / total:.1%} | {own / total * step_us:.1f} | {num_calls / len(steps):.2f} |")


if __name__ == "__main__":
    main()
