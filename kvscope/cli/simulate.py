"""`kvscope simulate`: a scenario, or a trace of real traffic, through the scheduler without a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvscope.cli.check import describe, violation_as_json

if TYPE_CHECKING:
    from kvscope.engine.scheduling.scenario import Scenario
    from kvscope.session.simulation import Simulation

STUCK_OR_VIOLATED = 1
"""Exit code where the run can make no more progress, or an invariant does not hold."""

MAX_STEP_MS = 60_000.0
"""And most microseconds of a token: a run of many steps still has a time that can be recorded."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(simulate)


def simulate(
    scenario: Annotated[
        Path,
        typer.Argument(help="Scenario file; or a trace, Mooncake's .jsonl or Azure's .csv.", show_default=False),
    ],
    record: Annotated[Path | None, typer.Option(help="Record the run in this file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the recording that is there.")] = False,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps [the file's, or 400].")] = None,
    dump: Annotated[
        bool, typer.Option("--dump", help="Print each step as a line of JSON instead of a summary.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Check every invariant after every step.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one line of JSON.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Of a trace: a scheduler setting.")
    ] = None,
    max_requests: Annotated[int | None, typer.Option("--requests", min=1, help="Of a trace: its first ones.")] = None,
    step_ms: Annotated[float, typer.Option(min=0.001, max=MAX_STEP_MS, help="Of a trace: what a step takes.")] = 8.0,
    token_us: Annotated[
        float, typer.Option(min=0.0, max=MAX_STEP_MS, help="Of a trace: and for each token of it.")
    ] = 20.0,
) -> None:
    """Run a scenario or a trace through the scheduler, with scripted tokens instead of a model.

    Exit code 1: the run can make no more progress, or an invariant does not hold.
    """
    from kvscope.cli.simulate_trace import simulate_trace
    from kvscope.cli.whatif import parse_setting
    from kvscope.engine.scheduling.scenario import load_scenario
    from kvscope.errors import UsageError
    from kvscope.session import simulation
    from kvscope.session.recordings_folder import claim_recording_path, remove_recording
    from kvscope.session.trace import is_trace

    if dump and as_json:
        raise UsageError("--dump and --json both print to standard output: choose one")
    traced = is_trace(scenario)
    if traced and (dump or check or max_steps is not None):
        raise UsageError(
            "--dump, --check and --max-steps are for scenarios; record the trace, and look at the recording"
        )
    if settings and not traced:
        raise UsageError("--set is for traces: a scenario has its settings in its file")
    loaded = None if traced else load_scenario(scenario)
    if record is not None:
        record = claim_recording_path(record, may_replace=force)
        if force:
            remove_recording(record)
    if loaded is None:
        simulate_trace(
            scenario,
            record,
            [parse_setting(text) for text in settings or ()],
            max_requests=max_requests,
            step_ms=step_ms,
            token_us=token_us,
            as_json=as_json,
        )
        return
    result = simulation.simulate(
        loaded,
        recording=record,
        max_steps=max_steps,
        is_checked=check,
        on_record=_print_record if dump else None,
    )
    if as_json:
        print(json.dumps(_as_json(loaded, result, record), ensure_ascii=False))
    elif not dump:
        _print_summary(loaded, result)
    _report(result, record, is_checked=check)
    stuck_or_wrong = result.outcome.stuck or any(not violation.is_warning for violation in result.violations)
    if stuck_or_wrong:
        raise typer.Exit(STUCK_OR_VIOLATED)


def _print_record(record: dict[str, Any]) -> None:
    print(json.dumps(record, ensure_ascii=False))


def _print_summary(scenario: Scenario, result: Simulation) -> None:
    from kvscope.analysis.text import visible

    outcome = result.outcome
    if scenario.shows:
        print(visible(scenario.shows))
    rows: list[tuple[str, ...]] = [("request", "prompt", "hit", "output", "preempted", "ended")]
    for request in outcome.requests:
        status = request.status
        ended = status.name.removeprefix("FINISHED_").lower() if status.is_finished else f"still {status.name}"
        figures = (request.num_prompt_tokens, request.num_hit_tokens, request.num_output_tokens)
        rows.append((visible(request.request_id), *map(str, (*figures, request.num_preemptions)), ended))
    _print_table(rows)
    print(
        f"{outcome.num_steps} steps, {outcome.num_empty_steps} of them empty; "
        f"{outcome.num_scheduled_tokens} tokens computed, "
        f"{sum(request.num_preemptions for request in outcome.requests)} preemptions"
    )


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Prints rows under their heads: the first and the last column are text, the others figures."""
    from kvscope.analysis.text import cell_width

    widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        gaps = [" " * (width - cell_width(cell)) for cell, width in zip(row, widths, strict=True)]
        figures = [gap + cell for gap, cell in zip(gaps[1:-1], row[1:-1], strict=True)]
        print("  ".join([row[0] + gaps[0], *figures, row[-1]]))


def _report(result: Simulation, record: Path | None, *, is_checked: bool) -> None:
    """Says on standard error how it ended."""
    from kvscope.analysis.text import visible

    outcome = result.outcome
    if outcome.stuck is not None:
        stuck = outcome.stuck
        print(
            f"stuck at step {stuck.step} ({stuck.kind}): {visible(stuck.request_id)}: {visible(stuck.reason)}",
            file=sys.stderr,
        )
    if outcome.hit_max_steps:
        print(f"stopped after {outcome.num_steps} steps, before the end; --max-steps allows more", file=sys.stderr)
    for violation in result.violations:
        print(describe(violation), file=sys.stderr)
    if is_checked and not result.violations:
        print("every invariant holds in every step", file=sys.stderr)
    if record is not None:
        print(f"{outcome.num_steps} steps recorded in {visible(str(record))}", file=sys.stderr)


def _as_json(scenario: Scenario, result: Simulation, record: Path | None) -> dict[str, Any]:
    outcome, stuck = result.outcome, result.outcome.stuck
    return {
        "scenario": scenario.name,
        "num_steps": outcome.num_steps,
        "num_empty_steps": outcome.num_empty_steps,
        "num_scheduled_tokens": outcome.num_scheduled_tokens,
        "hit_max_steps": outcome.hit_max_steps,
        "stuck": None
        if stuck is None
        else {"kind": stuck.kind, "step": stuck.step, "request_id": stuck.request_id, "reason": stuck.reason},
        "requests": [
            {
                "id": request.request_id,
                "num_prompt_tokens": request.num_prompt_tokens,
                "num_hit_tokens": request.num_hit_tokens,
                "num_preemptions": request.num_preemptions,
                "output_token_ids": request.output_token_ids,
                "status": request.status.name,
            }
            for request in outcome.requests
        ],
        "violations": [violation_as_json(violation) for violation in result.violations],
        "recording": None if record is None else str(record),
    }
