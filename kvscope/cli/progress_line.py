"""One line on standard error that says what is going on, rewritten in place; silent where nobody watches."""

from __future__ import annotations

import sys
import time

from kvscope.analysis.text import truncate, visible

INTERVAL_S = 0.1
"""Faster than this nobody reads."""
WIDTH = 79


class ProgressLine:
    """Shows a text until the next one; `clear` before writing to the same terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._is_on_screen = False
        self._last_s = 0.0

    def loading(self, what: str, progress: float | None) -> None:
        """Shows what is being loaded."""
        self._write(f"{what} {progress:.0%}" if progress is not None else f"{what} …")

    def running(self, text: str) -> None:
        """Shows how a run is getting on, if the last text has stood long enough."""
        now_s = time.monotonic()
        if now_s - self._last_s >= INTERVAL_S:
            self._last_s = now_s
            self._write(text)

    def clear(self) -> None:
        """Leaves an empty line."""
        if self._is_on_screen:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_on_screen = False

    def _write(self, text: str) -> None:
        if self._is_shown:
            sys.stderr.write(f"\r\x1b[K{truncate(visible(text), WIDTH)}")
            sys.stderr.flush()
            self._is_on_screen = True
