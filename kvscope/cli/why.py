"""`kvscope why`: why a request waited, was preempted, missed the prefix cache, was slow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvscope.analysis.detectors import Finding
    from kvscope.analysis.why import Overview, WhyAnswer


MANY_STEPS = 5000
"""Beyond so many steps an answer takes a while, and the command says what it is doing."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(why)


def why(
    file: Annotated[Path, typer.Argument(help="A recording.", show_default=False)],
    request: Annotated[
        str | None, typer.Argument(help="The request; without one, a table of all of them.", show_default=False)
    ] = None,
    step: Annotated[int | None, typer.Option(help="Look at this step from near.", show_default=False)] = None,
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="Repeat even a long run for what would have admitted it from step 0."),
    ] = False,
    wants_json: Annotated[bool, typer.Option("--json", help="All figures as one line of JSON.")] = False,
) -> None:
    """Explain why a request waited, was preempted, missed the prefix cache, or was slow.

    Without a request: what stands out in the run, and a line for each request.
    """
    from kvscope.analysis.detectors import find_all
    from kvscope.analysis.why import explain, overview
    from kvscope.analysis.why.layout import as_text
    from kvscope.analysis.why.report import overview_report, report
    from kvscope.errors import UsageError
    from kvscope.replay.replay import open_recording

    if request is None and step is not None:
        raise UsageError("--step looks at one request: name it, as in `kvscope why FILE REQUEST --step 7`")
    with open_recording(file) as timeline:
        if timeline.last_step >= MANY_STEPS:
            print(f"looking at up to {timeline.last_step + 1} steps, one by one …", file=sys.stderr)
        if request is not None:
            answer = explain(timeline, request, step, repeats_any_run=from_start)
            print(as_json(answer) if wants_json else as_text(report(answer)))
            return
        run, findings = overview(timeline), find_all(timeline)
    print(run_as_json(run, findings) if wants_json else as_text(overview_report(run, findings)))


def as_json(answer: WhyAnswer | Overview) -> str:
    """Returns all figures as one line of JSON."""
    import msgspec

    return msgspec.json.encode(answer).decode()


def run_as_json(run: Overview, findings: Sequence[Finding]) -> str:
    """Returns the overview and what was found as one line of JSON."""
    import msgspec

    told = [
        {
            "kind": finding.kind,
            "first_step": finding.first_step,
            "last_step": finding.last_step,
            "num_steps": finding.num_steps,
            "request_ids": finding.request_ids,
            "figures": finding.figures,
            "sentence": str(finding.sentence),
        }
        for finding in findings
    ]
    return msgspec.json.encode({**msgspec.to_builtins(run), "findings": told}).decode()
