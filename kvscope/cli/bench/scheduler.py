"""`kvscope bench scheduler`: schedule and update of a step, beside vLLM's own scheduler."""

from __future__ import annotations

import contextlib
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvscope.session.bench_scheduler import CaseTimes


def register(bench: typer.Typer) -> None:
    """Adds the command."""
    bench.command()(scheduler)


def scheduler(
    vllm: Annotated[Path | None, typer.Option(help="Python that has vLLM, to run its scheduler on the same.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Interleaved rounds of each case.")] = 5,
    steps: Annotated[int, typer.Option(min=10, help="Timed steps of a round.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each case.")] = False,
) -> None:
    """Time schedule and update of a step, recording off and on, and beside vLLM's own scheduler."""
    from kvscope.cli.progress_line import ProgressLine
    from kvscope.session.bench_measure import this_machine
    from kvscope.session.bench_scheduler import CASES, CaseTimes, VllmScheduler, time_kvscope

    progress = ProgressLine()
    machine = this_machine()
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(VllmScheduler(vllm)) if vllm is not None else None
        if not as_json:
            print(*machine.lines(), sep="\n", flush=True)
        for number, case in enumerate(CASES):
            times = CaseTimes(case, [], [], [])
            for round_number in range(pairs):
                progress.loading(f"{case.name}: round {round_number + 1} of {pairs}", None)
                times.off_us.append(time_kvscope(case, steps, is_recording=False))
                if other is not None:
                    times.vllm_us.append(other.time(case, steps))
                times.on_us.append(time_kvscope(case, steps, is_recording=True))
            progress.clear()
            if as_json:
                print(json.dumps(_as_json(times) | {"machine": machine.as_json()}), flush=True)
            else:
                _print_row(times, has_head=number == 0)


def _print_row(times: CaseTimes, *, has_head: bool) -> None:
    """Prints medians over the rounds, and of the ratios also the smallest and the largest."""
    if has_head:
        columns = f"{'µs of CPU time a step':<44}{'off':>9}{'recording':>11}"
        print(columns + (f"{'vLLM':>9}   {'off / vLLM':<20}recording / vLLM" if times.vllm_us else ""))
    row = f"{times.case.name:<44}{statistics.median(times.off_us):>9.1f}{statistics.median(times.on_us):>11.1f}"
    if times.vllm_us:
        row += f"{statistics.median(times.vllm_us):>9.1f}   {_spread(times.ratios('off')):<20}"
        row += _spread(times.ratios("on"))
    print(row, flush=True)


def _spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f})"


def _as_json(times: CaseTimes) -> dict[str, Any]:
    result: dict[str, Any] = {
        "case": times.case.name,
        "num_running": times.case.num_running,
        "num_admissions": times.case.num_admissions,
        "off_us": times.off_us,
        "recording_us": times.on_us,
    }
    if times.vllm_us:
        result |= {
            "vllm_us": times.vllm_us,
            "off_ratios": times.ratios("off"),
            "recording_ratios": times.ratios("on"),
            "off_ratio": statistics.median(times.ratios("off")),
            "recording_ratio": statistics.median(times.ratios("on")),
        }
    return result
