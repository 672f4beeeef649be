"""Textual's driver, over a terminal that may be closed at any moment, and whose keys may come in one piece.

Textual writes in a thread, through a queue of 30 texts. Were the thread to end with the error of a terminal that is
gone, whoever writes next but thirty would wait for it for ever: the screen could not even be left.

A terminal sends alt and a letter as escape and the letter. Textual takes both within 100 ms, or in one piece of a
connection that was slow, for alt: somebody who leaves a place and goes on at once would lose both keys, or page through
time (escape and b). No key here is with alt, so that they are the two keys that they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import IO, Any, cast

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

ESCAPE = "\x1b"


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


class KeyParser(XTermParser):
    """Takes escape and a character behind it for two keys."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        is_pair = len(sequence) == 2 and sequence[0] == ESCAPE and sequence in ANSI_SEQUENCES_KEYS
        if (alt or is_pair) and sequence[-1].isprintable():  # a lone `[` may begin what is longer: it is no pair
            yield events.Key("escape", ESCAPE)
            sequence, alt = sequence[-1], False
        yield from super()._sequence_to_key_events(sequence, alt)


linux_driver.XTermParser = KeyParser  # type: ignore[attr-defined]  # the driver makes one itself and asks nobody for it


class TerminalDriver(LinuxDriver):
    """Powers display and input on Linux and macOS."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self._file is not None:
            self._file = cast("Any", LastingFile(self._file))
