"""Key to painted screen, in a real pseudo-terminal: p50, p99 and the worst of many keys over a recording.

    python benchmarks/screen_latency.py RECORDING [--size 120x40] [--keys 200] [--busy]

A key is written to the terminal; it is painted with the last byte that comes back before the screen is quiet. With
`--busy` two processes use the processors meanwhile, as an engine does. `kvscope replay` is measured as users run it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import multiprocessing
import os
import pty
import random
import select
import statistics
import struct
import sys
import termios
import time
from pathlib import Path

RIGHT, LEFT, PAGE_RIGHT, PAGE_LEFT = b"\x1b[C", b"\x1b[D", b"L", b"H"
QUIET_S = 0.03


def main() -> None:
    """Parses, measures, prints one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    busy = [multiprocessing.Process(target=_use_a_processor, daemon=True) for _ in range(2 * options.busy)]
    for process in busy:
        process.start()
    with Screen(options.recording, columns, rows) as screen:
        latencies = sorted(screen.press(key) * 1000 for key in keys(options.keys))
    p99 = latencies[min(int(len(latencies) * 0.99), len(latencies) - 1)]
    print(
        f"{options.size} {options.keys} keys{' busy' if options.busy else ''}: "
        f"median {statistics.median(latencies):.1f} ms, p99 {p99:.1f} ms, worst {latencies[-1]:.1f} ms"
    )
    for process in busy:
        process.terminate()


def keys(number: int) -> list[bytes]:
    """Single steps both ways and jumps of ten."""
    chance = random.Random(7)
    return [chance.choice((RIGHT, LEFT, RIGHT, LEFT, PAGE_LEFT, PAGE_RIGHT)) for _ in range(number)]


class Screen:
    """`kvscope replay` in a pseudo-terminal."""

    def __init__(self, recording: Path, columns: int, rows: int) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", COLUMNS=str(columns), LINES=str(rows))
            command = Path(sys.executable).with_name("kvscope")
            os.execv(command, [str(command), "replay", str(recording), "--step", "300"])
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        self._read_until_quiet(1.5, patience_s=8.0)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the terminal goes with the screen
            os.write(self._terminal, b"q")
            self._read_until_quiet(0.3, patience_s=2.0)
        os.close(self._terminal)
        os.waitpid(self._pid, 0)

    def press(self, key: bytes) -> float:
        """Returns the seconds from the key to the last byte that it caused."""
        start = time.perf_counter()
        os.write(self._terminal, key)
        return self._read_until_quiet(QUIET_S, patience_s=2.0) - start

    def _read_until_quiet(self, quiet_s: float, *, patience_s: float) -> float:
        """Reads until nothing has come for so long; returns when the last byte came."""
        begin = last = time.perf_counter()
        has_any = False
        while True:
            ready, _, _ = select.select([self._terminal], [], [], quiet_s if has_any else patience_s)
            if not ready:
                if not has_any:
                    raise RuntimeError(f"nothing was painted within {time.perf_counter() - begin:.1f} s")
                return last
            if os.read(self._terminal, 1 << 16):
                has_any, last = True, time.perf_counter()


def _use_a_processor() -> None:
    while True:
        sum(range(100_000))


if __name__ == "__main__":
    main()
