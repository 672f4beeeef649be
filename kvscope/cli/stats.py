"""`kvscope stats`: latencies, throughput, budget, batches, prefix hits, preemptions, occupancy of recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kvscope.errors import UsageError

_MAX_STEPS_TO_DETECT = 20_000
_HISTOGRAMS = ("itl", "ttft", "queue", "end_to_end", "none")


def register(app: typer.Typer) -> None:
    """Adds the command to the command line."""
    app.command()(stats)


def stats(
    files: Annotated[list[Path], typer.Argument(help="Recordings.")],
    requests: Annotated[bool, typer.Option("--requests", help="Also a table of all requests.")] = False,
    by: Annotated[
        str | None, typer.Option(help="Also in groups: priority, salt (tenants), adapter or length (of the prompt).")
    ] = None,
    histogram: Annotated[
        str, typer.Option(help="Of which time to draw a histogram: itl, ttft, queue, end_to_end or none.")
    ] = "itl",
    findings: Annotated[
        bool | None,
        typer.Option(
            "--findings/--no-findings",
            help="Run the detectors, which read every block event; by default up to 20,000 steps.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON a recording, with every request.")] = False,
) -> None:
    """Show what a recording's requests got and what its steps were made of.

    Percentiles are exact: linear between the two nearest values, as numpy's. Times are in ms; a scripted run has no
    clock and is measured in steps.
    """
    from kvscope.analysis.detectors import find_all
    from kvscope.analysis.stats import group_summaries, read_statistics
    from kvscope.cli import stats_report
    from kvscope.replay import open_recording

    if histogram not in _HISTOGRAMS:
        raise UsageError(f"--histogram {histogram}: choose {', '.join(_HISTOGRAMS)}")
    for index, file in enumerate(files):
        with open_recording(file) as timeline:
            found = read_statistics(timeline)
            groups = group_summaries(found, by) if by is not None else []
            is_short = timeline.last_step < _MAX_STEPS_TO_DETECT
            detected = find_all(timeline) if (is_short if findings is None else findings) else None
            if as_json:
                record = stats_report.as_json(str(file), found, groups, detected)
                typer.echo(json.dumps(record, ensure_ascii=False))
                continue
            lines = [""] if index else []
            lines += stats_report.as_text(str(file), found, histogram)
            if by is not None:
                lines += stats_report.groups_text(groups)
            if requests:
                lines += stats_report.requests_text(found)
            lines += stats_report.warnings_text(found)
            if detected is not None:
                lines += stats_report.findings_text(detected)
            elif findings is None:
                lines += ["", "Detectors were not run on so long a recording; --findings runs them."]
            typer.echo("\n".join(lines))
