"""A busy engine without a model, as a process: the real scheduler and recorder over 256 requests, processors in use.

Between its steps it computes at full load for as long as a forward pass would take, in as many processes as there are
processors, as a model on a CPU does (one that a screen started leaves a core to it; this one does not). It has the
priority of an engine that a screen started. What it records can be followed like any engine's recording.

    python -m kvscope.session.bench_busy RECORDING NUM_RUNNING FORWARD_MS
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

from kvscope.recording import Recorder
from kvscope.session.bench_load import SteadyDecode
from kvscope.session.priority import yield_to_the_screen


def start_busy_engine(recording: Path, num_running: int, forward_ms: float) -> subprocess.Popen[bytes]:
    """Starts the process; it runs until it is ended, and then leaves a closed recording."""
    command = [sys.executable, "-P", "-m", "kvscope.session.bench_busy", str(recording), str(num_running)]
    return subprocess.Popen([*command, str(forward_ms)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def _compute(until: float) -> None:
    while time.monotonic() < until:
        sum(range(1_000))


def _use_a_processor() -> None:
    """Computes until its parent is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        _compute(time.monotonic() + 0.1)


def main() -> None:
    """Runs until standard input ends."""
    yield_to_the_screen()
    path, num_running, forward_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1e3
    os.set_blocking(sys.stdin.fileno(), False)
    num_others = (os.cpu_count() or 1) - 1
    others = [multiprocessing.Process(target=_use_a_processor, daemon=True) for _ in range(num_others)]
    for process in others:
        process.start()
    load = SteadyDecode(num_running)
    step = 0
    with Recorder(path, in_own_process=True) as recorder:
        while sys.stdin.buffer.read(1) is None:
            recorder.write_step(step, load.step())
            _compute(time.monotonic() + forward_s)
            step += 1
    for process in others:
        process.terminate()


if __name__ == "__main__":
    main()
