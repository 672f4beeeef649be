"""`kvscope lab`: claims about LLM serving, each held against real runs of a real model, as tables."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kvscope.cli.progress_line import ProgressLine
from kvscope.errors import UsageError
from kvscope.paths import expanded
from kvscope.session.options import DEFAULT_MODEL, EngineOptions

MAX_ROUNDS = 100


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(lab)


def lab(
    name: Annotated[str | None, typer.Argument(help="A lab; without one they are listed.", show_default=False)] = None,
    model: Annotated[str, typer.Option(help="A name of `kvscope models list`, or as for `run`.")] = DEFAULT_MODEL,
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the recordings, in a folder of the lab's name in it.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_ROUNDS, help="Times that every variant is run; by default 2 or 3, as the lab."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, with the figures of every round.")] = False,
) -> None:
    """Hold a claim about serving against real runs: a workload under several settings, in tables.

    Counts follow from the scheduler's decisions and are exact. Times are medians over rounds in which the variants take
    turns, with the smallest and the largest.
    """
    from kvscope.cli import lab_report
    from kvscope.session.labs import LABS, lab_named

    if name is None:
        typer.echo(lab_report.list_json(LABS) if as_json else "\n".join(lab_report.list_text(LABS)))
        return
    chosen = lab_named(name)
    from kvscope.session.labs.run import run_lab

    progress = ProgressLine()
    with _folder(keep, chosen.name) as folder:
        try:
            found = run_lab(chosen, EngineOptions(model=model), folder, rounds or chosen.num_rounds, progress.loading)
        finally:
            progress.clear()
        kept = folder if keep is not None else None
        if as_json:
            typer.echo(json.dumps(lab_report.as_json(found, kept), ensure_ascii=False))
        else:
            typer.echo("\n".join(lab_report.as_text(found, kept)))


@contextlib.contextmanager
def _folder(keep: Path | None, name: str) -> Iterator[Path]:
    """Gives an empty folder for the recordings; it goes at the end where nobody wants to keep them."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="kvscope-lab-") as folder:
            yield Path(folder)
        return
    folder_kept = expanded(keep) / name
    try:
        folder_kept.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder_kept.iterdir())
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder_kept}: {error.strerror}") from error
    if not is_empty:
        raise UsageError(f"{folder_kept} has files already: name another folder")
    yield folder_kept
