"""Textual's driver, over a terminal that may be closed at any moment.

Textual writes in a thread, through a queue of 30 texts. Were the thread to end with the error of a terminal that is
gone, whoever writes next but thirty would wait for it for ever: the screen could not even be left.
"""

from __future__ import annotations

import contextlib
from typing import IO, Any, cast

from textual.drivers.linux_driver import LinuxDriver


class LastingFile:
    """A file that takes what is written to it, also when nobody is there to see it any more."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Writes as far as it can be written."""
        with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes as far as it can be flushed."""
        with contextlib.suppress(OSError, ValueError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class TerminalDriver(LinuxDriver):
    """Powers display and input on Linux and macOS."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self._file is not None:
            self._file = cast("Any", LastingFile(self._file))
