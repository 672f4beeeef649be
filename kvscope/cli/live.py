"""`kvscope live`: the screen over an engine in a process of its own. What `kvscope` alone does."""

from __future__ import annotations

import contextlib
import datetime
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.analysis.spans import count
from kvscope.analysis.text import visible
from kvscope.cli.config import ASCII_HELP, THEME_HELP, screen_config
from kvscope.cli.engine_options import recorded_to, with_engine_options
from kvscope.control_client import ControlClient
from kvscope.errors import EngineError, UsageError
from kvscope.session.build import check_model_is_there
from kvscope.session.options import EngineOptions
from kvscope.session.starter import EngineStarter, StartedEngine

if TYPE_CHECKING:
    from kvscope.tui.config import Config

END_TIMEOUT_S = 3.0
"""How long an engine that was told to end is waited for: the step under way is finished, the recording closed."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(with_engine_options(live))


def live(
    engine: EngineOptions,
    chat: Annotated[bool, typer.Option("--chat/--raw", help="Prompts go through the chat template, or as is.")] = True,
    is_ascii: Annotated[bool | None, typer.Option("--ascii/--no-ascii", help=ASCII_HELP)] = None,
    theme: Annotated[str | None, typer.Option(help=THEME_HELP)] = None,
) -> None:
    """Type prompts and watch blocks, queues and budget move; pause, step, and go back to every decision."""
    require_terminal("kvscope run works without one")
    config = screen_config(theme, is_ascii)
    check_model_is_there(engine.model)
    starter = EngineStarter(recorded_to(engine, datetime.datetime.now()))
    try:
        run_screen(starter.current.client, config, is_chat=chat, owns_engine=True, starter=starter)
        with _without_interrupts():
            _say_how_it_ended(starter.started)
    finally:
        for started in starter.started:
            started.client.disconnect()


def require_terminal(instead: str) -> None:
    """Raises `UsageError` where there is no terminal to draw on and read keys from."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"the screen needs a terminal, standard input or output is none: {instead}")


def run_screen(
    client: ControlClient, config: Config, *, is_chat: bool, owns_engine: bool, starter: EngineStarter | None = None
) -> None:
    """Shows the engine's recording while it grows, until the screen is left."""
    from kvscope.replay import open_recording
    from kvscope.tui.app import KvscopeApp
    from kvscope.tui.running import run_app

    run_app(
        KvscopeApp(
            None,
            client,
            open_timeline=open_recording,
            config=config,
            is_chat=is_chat,
            owns_engine=owns_engine,
            starter=starter,
        )
    )


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Goes on at ctrl+c: it has left the screen, the engine is ending, and its recording is to become one file."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _say_how_it_ended(engines: Sequence[StartedEngine]) -> None:
    """Says where each engine's recording is. Raises `EngineError` where the last one has failed."""
    for engine in engines[:-1]:
        _say_where_it_is_recorded(engine)
    last = engines[-1]
    status = last.client.status
    if status.phase == "failed":
        log = f"; its log is {last.spawned.log_path}" if last.spawned.log_path.exists() else ""
        kept = f"; what it recorded is in {last.recording}" if status.recording else ""
        raise EngineError(f"the engine failed: {status.detail}{kept}{log}")
    _say_where_it_is_recorded(last)


def _say_where_it_is_recorded(engine: StartedEngine) -> None:
    from kvscope.replay.opening import tidy

    status = engine.client.status
    try:
        engine.spawned.process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        num_left = status.num_running + status.num_waiting + status.num_submitted
        what = f"finishes {count(num_left, 'request')} and ends" if num_left else "is ending"
        _tell(f"the engine {what} (kvscope attach shows it)")
    # The screen may have held it open while the engine closed it; where the engine still has it, it closes it last.
    tidy(engine.recording)
    _tell(f"recorded in {engine.recording}")


def _tell(text: str) -> None:
    """Says something on the terminal, unless that is gone."""
    with contextlib.suppress(OSError):
        print(visible(text), file=sys.stderr, flush=True)
