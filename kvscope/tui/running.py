"""Runs the screen in a terminal, until it is left and nothing reads the keys any more."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from kvscope.control import EngineControl, EngineStarter
from kvscope.replay.timeline import Timeline
from kvscope.tui.app import KvscopeApp
from kvscope.tui.config import DEFAULT, Config
from kvscope.tui.desk import OpenTimeline
from kvscope.tui.recordings import Alignment

THREAD_SWITCH_SECONDS = 0.0005
"""How long a thread that answers a question, or writes to the terminal, may keep the screen waiting (and the other way
round), each time that a query has let the others go on. Python's own 5 ms would add up to more than a key may take."""


def run_app(
    timeline: Timeline | None,
    control: EngineControl | None = None,
    *,
    others: Sequence[Timeline] = (),
    alignment: Alignment | None = None,
    open_timeline: OpenTimeline | None = None,
    initial_step: int | None = None,
    config: Config = DEFAULT,
    is_chat: bool = True,
    owns_engine: bool = True,
    starter: EngineStarter | None = None,
) -> None:
    """Runs the screen until it is left. See `KvscopeApp`."""
    app = KvscopeApp(
        timeline,
        control,
        others=others,
        alignment=alignment,
        open_timeline=open_timeline,
        initial_step=initial_step,
        config=config,
        is_chat=is_chat,
        owns_engine=owns_engine,
        starter=starter,
    )
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
