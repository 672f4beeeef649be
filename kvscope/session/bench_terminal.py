"""A command in a pseudo-terminal, and what stands on its screen: enough of a terminal to read what an app has painted.

Understands what Textual writes: cursor moves, erasing, text of one and two cells. Colours and modes are ignored.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.cells import cell_len

_CONTROL = re.compile(
    r"\x1b\[(?P<params>[0-?]*)[ -/]*(?P<final>[@-~])"  # CSI
    r"|\x1b[\]P_^X].*?(?:\x07|\x1b\\)"  # OSC, DCS and the like
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x1f\x7f]",
    re.DOTALL,
)
_OPEN_END = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]P_^X][^\x07]*|[ -/]*)?$", re.DOTALL)
"""A control sequence that has not come whole yet."""


class PaintedScreen:
    """The cells of a terminal, as far as they are text."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns = columns
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending = ""

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def feed(self, data: bytes) -> None:
        """Paints what a command has written."""
        text = self._pending + self._decoder.decode(data)
        open_end = _OPEN_END.search(text)
        self._pending = text[open_end.start() :] if open_end else ""
        text = text[: open_end.start()] if open_end else text
        position = 0
        for control in _CONTROL.finditer(text):
            self._write(text[position : control.start()])
            self._obey(control)
            position = control.end()
        self._write(text[position:])

    def _write(self, text: str) -> None:
        for char in text:
            width = cell_len(char)
            if width == 0 or self._column + width > self._columns:
                continue
            self._cells[self._row][self._column] = char
            if width == 2:
                self._cells[self._row][self._column + 1] = ""
            self._column += width

    def _obey(self, control: re.Match[str]) -> None:
        final = control["final"]
        if final is None:
            match control[0]:
                case "\r":
                    self._column = 0
                case "\n":
                    self._move(self._row + 1, self._column)
                case "\b":
                    self._move(self._row, self._column - 1)
            return
        numbers = [int(part) if part.isdigit() else 0 for part in control["params"].split(";")]
        count = max(numbers[0], 1)
        match final:
            case "H" | "f":
                self._move(count - 1, max(numbers[1], 1) - 1 if len(numbers) > 1 else 0)
            case "A":
                self._move(self._row - count, self._column)
            case "B":
                self._move(self._row + count, self._column)
            case "C":
                self._move(self._row, self._column + count)
            case "D":
                self._move(self._row, self._column - count)
            case "G":
                self._move(self._row, count - 1)
            case "J":
                self._cells = [[" "] * self._columns for _ in self._cells]
            case "K":
                self._cells[self._row][self._column :] = [" "] * (self._columns - self._column)

    def _move(self, row: int, column: int) -> None:
        self._row = min(max(row, 0), len(self._cells) - 1)
        self._column = min(max(column, 0), self._columns - 1)


class TerminalCommand:
    """A command with a terminal of its own. Use as a context manager."""

    def __init__(self, command: Sequence[str], columns: int, rows: int) -> None:
        self.screen = PaintedScreen(columns, rows)
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(inner)

    def __enter__(self) -> TerminalCommand:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.press(b"\x03")
            self.wait_until(lambda: False, timeout_s=5.0)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._terminal)

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)

    def wait_until(self, is_painted: Callable[[], bool], *, timeout_s: float) -> bool:
        """Paints what comes until the screen is as it should be; False where it is not in time.

        Raises `OSError` where the command has ended.
        """
        deadline = time.monotonic() + timeout_s
        while not is_painted():
            if not self._paint(max(deadline - time.monotonic(), 0)):
                return False
        return True

    def wait_until_quiet(self, quiet_s: float, *, timeout_s: float) -> float:
        """Paints what comes until nothing has come for so long; returns when the last of it came.

        Moments are of `time.perf_counter`; before anything comes, it is the moment of the call.
        """
        last = time.perf_counter()
        deadline = last + timeout_s
        while self._paint(quiet_s):
            last = time.perf_counter()
            if last > deadline:
                break
        return last

    def resident_bytes(self) -> int:
        """Returns the memory that the command's process holds now; 0 where the system does not tell."""
        return resident_bytes(self.process.pid)

    def cpu_ms(self) -> float:
        """Returns the processor time that the command's process has used; 0 where the system does not tell."""
        return cpu_ms(self.process.pid)

    def _paint(self, timeout_s: float) -> bool:
        """Paints what has come, or comes within the time; False where nothing does."""
        ready, _, _ = select.select([self._terminal], [], [], timeout_s)
        if ready:
            self.screen.feed(os.read(self._terminal, 1 << 16))
        return bool(ready)


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process; 0 where the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def cpu_ms(pid: int) -> float:
    """Returns the processor time that a process has used, of the threads that it still has; 0 where nobody tells."""
    total_ns = 0
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total_ns += int((thread / "schedstat").read_text().split()[0])
    return total_ns / 1e6
