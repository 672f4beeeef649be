"""`kvscope replay`: the screen over a recording, closed or still growing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvscope.cli.live import require_terminal
from kvscope.errors import UsageError


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(replay)


def replay(
    files: Annotated[list[Path], typer.Argument(help="The recording.", metavar="FILE")],
    step: Annotated[int | None, typer.Option(help="Begin at this step instead of the last one.")] = None,
    is_ascii: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters only.")] = False,
    theme: Annotated[str, typer.Option(help="dark or light.")] = "dark",
) -> None:
    """Move through every step of a recording: what was decided, and the queues and blocks that it left."""
    from kvscope.replay import open_recording
    from kvscope.tui.app import run_app

    if len(files) > 1:
        raise UsageError(f"{len(files)} files were given: one recording at a time can be shown")
    require_terminal(f"kvscope show {files[0]} prints a step as text")
    timeline = open_recording(files[0])
    if step is not None and not timeline.first_step <= step <= timeline.last_step:
        last = timeline.last_step
        timeline.close()
        raise UsageError(f"there is no step {step} in {files[0]}: it has {timeline.first_step} to {last}")
    run_app(timeline, open_timeline=open_recording, initial_step=step, is_ascii=is_ascii, theme=theme)
