"""Runs the screen in a terminal, until it is left and nothing reads the keys any more."""

from __future__ import annotations

import sys
import threading

from kvscope.tui.app import KvscopeApp

THREAD_SWITCH_SECONDS = 0.0005
"""How long a thread that answers a question, or writes to the terminal, may keep the screen waiting (and the other way
round), each time that a query has let the others go on. Python's own 5 ms would add up to more than a key may take."""


def run_app(app: KvscopeApp) -> None:
    """Runs the screen until it is left."""
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    try:
        app.run()
    finally:
        end_input(app)


def end_input(app: KvscopeApp) -> None:
    """Ends every thread that reads the keys; to be called when the app has run.

    A terminal that is closed sends SIGCONT too, upon which Textual starts a second one. It ends one of the two, and the
    process would wait for the other for ever.
    """
    exit_event = getattr(app._driver, "exit_event", None)
    if isinstance(exit_event, threading.Event):
        exit_event.set()
