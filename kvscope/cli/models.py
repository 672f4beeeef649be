"""`kvscope models`: which models are there, fetching one, and checking what was fetched."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kvscope.cli.model_memory import show_model
from kvscope.errors import ModelError

_STATES = {
    "ready": "ready",
    "missing": "not fetched",
    "broken": "broken: fetch it again",
    "built in": "built in",
}
_ACTIONS = {"download": "downloading", "check": "checking", "unpack": "unpacking"}


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    models = typer.Typer(
        help="List, fetch, verify and show models.", no_args_is_help=True, pretty_exceptions_enable=False
    )
    models.command("list")(list_models)
    models.command("fetch")(fetch_model)
    models.command("verify")(verify_models)
    models.command("show")(show_model)
    app.add_typer(models, name="models")


def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the models that have a name, and whether they are there."""
    from kvscope.engine.model import catalogue

    rows = [
        {
            "name": entry.name,
            "state": str(catalogue.quick_state(entry)),
            "bytes": entry.num_bytes,
            "licence": entry.licence,
            "description": entry.description,
            "path": str(entry.path),
        }
        for entry in catalogue.CATALOGUE.values()
    ]
    toy = "seeded random weights and a byte tokenizer, for tests and for use without a download"
    rows.append({"name": "toy", "state": "built in", "bytes": 0, "licence": "", "description": toy, "path": ""})
    for row in rows:
        if as_json:
            typer.echo(json.dumps(row, ensure_ascii=False))
        else:
            num_bytes = row["bytes"]
            size = f"{num_bytes / 1e6:,.0f} MB, " if isinstance(num_bytes, int) and num_bytes else ""
            typer.echo(f"{row['name']:<14} {_STATES[str(row['state'])]:<14} {size}{row['description']}")
            if row["path"]:
                typer.echo(f"{'':<14} {row['path']}")


def fetch_model(
    name: Annotated[str, typer.Argument(help="A name of `kvscope models list`.")] = "smollm2-135m",
) -> None:
    """Fetch a model into the cache folder; does nothing where it is there and whole."""
    from kvscope.engine.model import catalogue

    entry = catalogue.find_entry(name)
    with _ProgressBar(name) as report:
        path = catalogue.fetch(entry, report)
    typer.echo(path)


def verify_models(
    name: Annotated[str | None, typer.Argument(help="One model; without it, all that were fetched.")] = None,
) -> None:
    """Check fetched models against their hashes. Exit code 4 where one is broken, or the one named is missing."""
    from kvscope.engine.model import catalogue

    entries = [catalogue.find_entry(name)] if name else list(catalogue.CATALOGUE.values())
    bad: list[str] = []
    for entry in entries:
        with _ProgressBar(entry.name) as report:
            state = catalogue.verify(entry, report)
        typer.echo(f"{entry.name:<14} {'whole' if state == 'ready' else _STATES[state]:<24} {entry.path}")
        if state == "broken" or (name and state == "missing"):
            bad.append(entry.name)
    if bad:
        raise ModelError(f"{', '.join(bad)}: missing or broken; run: kvscope models fetch {bad[0]}")


class _ProgressBar:
    """A bar on stderr, named for what is being done; only on a terminal does it move."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        self._name = name
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, int] = {}

    def __enter__(self) -> _ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        from rich.progress import TaskID

        if what not in self._tasks:
            for other in self._tasks.values():
                self._progress.update(TaskID(other), visible=False)
            self._tasks[what] = self._progress.add_task(f"{_ACTIONS.get(what, what)} {self._name}", total=total)
        self._progress.update(TaskID(self._tasks[what]), completed=done, total=total)
