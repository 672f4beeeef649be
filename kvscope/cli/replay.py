"""`kvscope replay`: the screen over one recording or several, closed or still growing."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from kvscope.cli.config import ASCII_HELP, THEME_HELP, screen_config
from kvscope.cli.live import require_terminal
from kvscope.errors import UsageError

STEP_HELP = (
    "Begin at this step of the first one. By default a run that is over begins with its first step; one that goes on, "
    "failed, or left requests in its queues with its last."
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(replay)


def replay(
    files: Annotated[list[Path], typer.Argument(help="Recordings; the first one is shown first.", metavar="FILE…")],
    step: Annotated[int | None, typer.Option(help=STEP_HELP)] = None,
    align: Annotated[
        str,
        typer.Option(
            help="What goes together in several: clock (engines of one system), step (variants of one run), or auto: "
            "clock where the engines ran at the same time."
        ),
    ] = "auto",
    is_ascii: Annotated[bool | None, typer.Option("--ascii/--no-ascii", help=ASCII_HELP)] = None,
    theme: Annotated[str | None, typer.Option(help=THEME_HELP)] = None,
) -> None:
    """Move through every step of a recording: what was decided, and the queues and blocks that it left.

    Of several, `a` shows the next at the same moment, and `c` where two of them part.
    """
    from kvscope.replay import open_recording
    from kvscope.tui.app import KvscopeApp
    from kvscope.tui.opening import opening_step
    from kvscope.tui.running import run_app

    if align not in ("auto", "clock", "step"):
        raise UsageError(f"--align {align}: choose auto, clock or step")
    twice = next((file for number, file in enumerate(files) if file in files[:number]), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice: name each recording once")
    config = screen_config(theme, is_ascii)
    require_terminal(f"kvscope show {files[0]} prints a step as text")
    with ExitStack() as opened:
        timelines = [opened.enter_context(open_recording(file)) for file in files]
        first = timelines[0]
        if step is not None and not first.first_step <= step <= first.last_step:
            raise UsageError(f"there is no step {step} in {files[0]}: it has {first.first_step} to {first.last_step}")
        app = KvscopeApp(
            first,
            others=timelines[1:],
            alignment=None if align == "auto" else align,  # type: ignore[arg-type]  # checked above
            open_timeline=open_recording,
            initial_step=opening_step(first) if step is None else step,
            config=config,
        )
        run_app(app)
