"""`kvscope bench`: what kvscope's parts cost, as ratios where a peer exists. One module a benchmark."""

from __future__ import annotations

import typer

from kvscope.cli.bench import engine, kernels, recorder, scheduler, seek, tui

bench = typer.Typer(help="Measure kvscope's own parts.", no_args_is_help=True, rich_markup_mode=None)


@bench.callback()
def group() -> None:
    """Measure kvscope's own parts."""


BENCHMARKS = (engine, scheduler, recorder, seek, tui, kernels)
for benchmark in BENCHMARKS:
    benchmark.register(bench)


def register(app: typer.Typer) -> None:
    """Adds the group of commands."""
    app.add_typer(bench, name="bench")
