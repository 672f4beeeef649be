"""`kvscope diff`: two recordings to where they part, or two steps of one recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kvscope.errors import UsageError

DIFFERENT = 1
"""Exit code where two recordings decide differently, as diff(1)'s."""


def register(app: typer.Typer) -> None:
    """Adds the command to the command line."""
    app.command()(diff)


def diff(
    files: Annotated[list[Path], typer.Argument(help="Two recordings, or one with --steps.")],
    steps: Annotated[
        tuple[int, int] | None, typer.Option(metavar="A B", help="Compare these two steps of one recording.")
    ] = None,
    match: Annotated[
        str,
        typer.Option(
            help="How requests are matched: id, content (equal prompt, salt and adapter, in order), or auto: by id "
            "where no id has two prompts."
        ),
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Find the first step in which two recordings decide differently, from which state, and what it led to.

    Exit code 1: the recordings decide differently. With --steps the exit code is 0.
    """
    from kvscope.analysis.divergence import diverge
    from kvscope.analysis.step_difference import step_difference
    from kvscope.cli import diff_report
    from kvscope.replay import open_recording

    if match not in ("auto", "id", "content"):
        raise UsageError(f"--match {match}: choose auto, id or content")
    wanted = 2 if steps is None else 1
    if len(files) != wanted:
        given = f"{len(files)} recording{'' if len(files) == 1 else 's'}{' with --steps' if steps else ''}"
        raise UsageError(f"{given}: name two recordings, or one with --steps A B")
    with open_recording(files[0]) as a:
        if steps is not None:
            change = step_difference(a, *steps)
            lines = [json.dumps(diff_report.steps_json(change), ensure_ascii=False)]
            typer.echo("\n".join(lines if as_json else diff_report.steps_text(str(files[0]), change)))
            return 0
        with open_recording(files[1]) as b:
            found = diverge(a, b, match)  # type: ignore[arg-type]  # checked above
    if as_json:
        typer.echo(json.dumps(diff_report.runs_json(found), ensure_ascii=False))
    else:
        typer.echo("\n".join(diff_report.runs_text(str(files[0]), str(files[1]), found)))
    return 0 if found.comparison.first_difference is None else DIFFERENT
