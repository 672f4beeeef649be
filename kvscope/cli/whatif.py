"""`kvscope whatif`: the recorded workload under other settings, and what changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvscope.analysis.setting_text import parse_sweep, parse_value
from kvscope.errors import UsageError

if TYPE_CHECKING:
    from kvscope.analysis.whatif import WhatIfStudy


def register(app: typer.Typer) -> None:
    """Adds the command to the command line."""
    app.command()(whatif)


def whatif(
    file: Annotated[Path, typer.Argument(help="A recording.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A scheduler setting by its vLLM name; may be repeated."),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="NAME=A,B,C", help="Try these values of one setting, as a table.")
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option(
            help="steps: requests come at their recorded steps. time: at their recorded times, on a clock of estimated "
            "step times. auto: time where the run has a clock and something is changed, else steps."
        ),
    ] = "auto",
    record: Annotated[Path | None, typer.Option(help="Write the changed run as a recording of its own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Run a recording's workload through the scheduler again under other settings, without the model.

    Outputs are the recorded ones. The step time is a model fitted to this recording; every time is an estimate. Without
    --set it shows that the recording's own settings reproduce its decisions.

    `--set batching=static|exclusive|unified` compares ways of making up a batch, `--set num_gpu_blocks=N` pool sizes.
    """
    from kvscope.analysis.whatif import WhatIfStudy
    from kvscope.replay import open_recording

    if arrivals not in ("auto", "steps", "time"):
        raise UsageError(f"--arrivals {arrivals}: choose auto, steps or time")
    given = dict(map(parse_setting, settings or []))
    with open_recording(file) as timeline:
        study = WhatIfStudy(timeline)
        if sweep is not None:
            print_sweep(study, sweep, given, arrivals, as_json)
            return
        found = study.run(given, arrivals)  # type: ignore[arg-type]  # checked above
        from kvscope.cli import whatif_report

        reproduction = study.reproduce()
        if record is not None:
            _write(study, given, arrivals, record)
        if as_json:
            typer.echo(json.dumps(whatif_report.as_json(found, reproduction), ensure_ascii=False))
        else:
            typer.echo("\n".join(whatif_report.as_text(str(file), found, reproduction)))


def parse_setting(text: str) -> tuple[str, Any]:
    """Returns name and value of `NAME=VALUE`. Raises `UsageError` for another form."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(f"--set {text}: write it as NAME=VALUE, for example max_num_batched_tokens=512")
    return name.strip().replace("-", "_"), parse_value(value)


def print_sweep(study: WhatIfStudy, sweep: str, given: dict[str, Any], arrivals: str, as_json: bool) -> None:
    """Writes one row for each value of the setting."""
    from kvscope.cli import whatif_report

    name, values = parse_sweep(sweep, "--sweep ")
    if name in given:
        raise UsageError(f"--sweep and --set both give {name}: leave one of them out")
    rows = study.sweep(name, values, given, arrivals)  # type: ignore[arg-type]
    if as_json:
        typer.echo(json.dumps(whatif_report.sweep_as_json(rows), ensure_ascii=False))
    else:
        typer.echo("\n".join(whatif_report.sweep_as_text(rows)))


def _write(study: WhatIfStudy, given: dict[str, Any], arrivals: str, path: Path) -> None:
    from kvscope.recording.recorder import Recorder

    with Recorder(path) as recorder:
        for step, events in study.steps(given, arrivals):  # type: ignore[arg-type]
            recorder.write_step(step, events)
