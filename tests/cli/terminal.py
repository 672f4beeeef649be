"""A command in a pseudo-terminal, as somebody at a keyboard has it: for tests of what a real terminal sees."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

TIMEOUT_S = 60.0
KVSCOPE = (sys.executable, "-c", "from kvscope.cli.main import main; main()")


class Terminal:
    """A command in a terminal of 120×40."""

    def __init__(self, *arguments: str, is_controlling: bool = True) -> None:
        """`is_controlling`: the terminal sends SIGHUP to the command when it is closed."""
        self.screen, self._inner = pty.openpty()
        fcntl.ioctl(self._inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._modes = termios.tcgetattr(self._inner)
        self.process = subprocess.Popen(
            [*KVSCOPE, *arguments],
            stdin=self._inner,
            stdout=self._inner,
            stderr=self._inner,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
            preexec_fn=_take_terminal if is_controlling else None,
        )
        self.seen = ""

    def read_until(self, text: str) -> None:
        """Reads what the command writes until the text is in it."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.seen:
            assert self._read(deadline - time.monotonic()), f"{text!r} did not come: {self.seen[-2000:]!r}"

    def read_to_the_end(self) -> int:
        """Reads until the command has ended, and returns its exit code."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"the command has not ended: {self.seen[-2000:]!r}"
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.wait()

    def _read(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self.screen], [], [], max(timeout_s, 0))
        if ready:
            self.seen += os.read(self.screen, 1 << 16).decode(errors="replace")
        return bool(ready)

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    @property
    def is_restored(self) -> bool:
        """True where the terminal is as the command found it: its modes, the screen before, a cursor that is seen."""
        _, left, after = self.seen.rpartition("\x1b[?1049l")
        return termios.tcgetattr(self._inner) == self._modes and bool(left) and "\x1b[?25h" in after

    def close(self) -> None:
        """Closes the window, as somebody does who is done; nothing can be read any more."""
        for descriptor in (self.screen, self._inner):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def end(self) -> None:
        """Ends what is left of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        self.close()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
