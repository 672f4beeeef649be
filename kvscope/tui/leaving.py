"""Leaving that nobody is asked about: a signal says so, or the terminal is gone and no signal came.

A terminal that is closed sends SIGHUP to what it controls. What was started otherwise, in a session of its own or by a
container, is told nothing: its input ends, and whoever reads on does so for ever.
"""

from __future__ import annotations

import asyncio
import select
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Leaving:
    """Ends the screen, once; a second signal does not wait for the engine's answer."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app
        self._is_watching = False
        self._is_leaving = False

    def watch(self) -> None:
        """Begins to listen; to be called once the screen runs in a terminal."""
        self._is_watching = True
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.leave)

    def look(self) -> None:
        """Leaves where the terminal is gone; to be called again and again."""
        if self._is_watching and not self._is_leaving and is_gone():
            self.leave()

    def leave(self) -> None:
        """Leaves without a question: an engine of the screen's own finishes what it has to run, and ends."""
        if self._is_leaving:
            self._app.exit()
        else:
            self._is_leaving = True
            self._app.run_worker(self._app.engine.leave(), group="leave")


def is_gone() -> bool:
    """True where the other end of the terminal that is read from has been closed."""
    if sys.__stdin__ is None or sys.__stdin__.closed:
        return True
    poll = select.poll()
    poll.register(sys.__stdin__.fileno(), select.POLLIN)
    return any(found & select.POLLHUP for _, found in poll.poll(0))
