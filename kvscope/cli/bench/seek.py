"""`kvscope bench seek`: open a recording of a million steps, and seek in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kvscope.session.bench_recording import Made
    from kvscope.session.bench_seek import SeekTimes

_WAYS = {"any": "any step", "back": "a step back", "on": "a step on", "back10": "ten back", "on10": "ten on"}


def register(bench: typer.Typer) -> None:
    """Adds the command."""
    bench.command()(seek)


def seek(
    recording: Annotated[
        Path | None, typer.Option(help="Read this recording [one that is made once, and kept in the cache folder].")
    ] = None,
    steps: Annotated[int, typer.Option(min=1_000, help="Steps of the recording that is made.")] = 1_000_000,
    seeks: Annotated[int, typer.Option(min=10, help="Seeks of each kind.")] = 2_000,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Time opening and seeking, and look whether memory grows. The first call makes the recording: ten minutes."""
    from kvscope.cli.progress_line import ProgressLine
    from kvscope.session.bench_measure import this_machine
    from kvscope.session.bench_recording import service_day
    from kvscope.session.bench_seek import measure_seeks

    progress = ProgressLine()
    machine = this_machine()
    made = service_day(
        steps, recording, on_step=lambda step, of: progress.running(f"recording: step {step:,} of {of:,}")
    )
    times = measure_seeks(made.path, seeks, lambda done, of: progress.running(f"seeking: {done:,} of {of:,}"))
    progress.clear()
    if as_json:
        found = {"benchmark": "seek", "machine": machine.as_json(), "recording": recording_as_json(made)}
        print(json.dumps(found | _as_json(times), ensure_ascii=False))
    else:
        print(*machine.lines(), sep="\n")
        _print(made, times)


def recording_as_json(made: Made) -> dict[str, Any]:
    """Returns what is known of a recording that a benchmark reads."""
    return {
        "path": str(made.path),
        "num_bytes": made.num_bytes,
        "made_in_s": made.wall_s,
        "num_requests": made.num_requests,
        "num_tokens": made.num_tokens,
        "num_preemptions": made.num_preemptions,
        "fewest_running": made.fewest_running,
    }


def recording_line(made: Made, num_steps: int) -> str:
    """Returns the same in words."""
    text = f"{made.path}: {num_steps:,} steps, {made.num_bytes / 1e6:,.0f} MB"
    if made.wall_s is not None:
        text += f"; made in {made.wall_s:.0f} s: {made.num_requests:,} requests, {made.num_tokens:,} tokens, "
        text += f"{made.num_preemptions:,} preemptions, never below {made.fewest_running} running"
    return text


def _as_json(times: SeekTimes) -> dict[str, Any]:
    from kvscope.session.bench_measure import latencies

    return {
        "num_steps": times.num_steps,
        "open_ms": [round(value, 2) for value in times.open_ms],
        "seek_ms": {way: latencies(values).as_json() for way, values in times.wall_ms.items()},
        "seek_cpu_ms": {way: latencies(values).as_json() for way, values in times.cpu_ms.items()},
        "rss_before_bytes": times.rss_before_bytes,
        "rss_after_bytes": times.rss_after_bytes,
    }


def _print(made: Made, times: SeekTimes) -> None:
    import statistics

    from kvscope.session.bench_measure import latencies

    print(recording_line(made, times.num_steps))
    print(
        f"open: {statistics.median(times.open_ms):.0f} ms, worst {max(times.open_ms):.0f} (the first may read the disk)"
    )
    print(f"{'ms':<14}{'seeks':>7}{'p50':>8}{'p90':>8}{'p99':>8}{'worst':>8}{'cpu p50':>10}{'cpu p99':>9}")
    for way, values in times.wall_ms.items():
        wall, cpu = latencies(values), latencies(times.cpu_ms[way])
        row = f"{_WAYS[way]:<14}{wall.num_values:>7}{wall.p50:>8.1f}{wall.p90:>8.1f}{wall.p99:>8.1f}{wall.worst:>8.1f}"
        print(row + f"{cpu.p50:>10.1f}{cpu.p99:>9.1f}")
    print(f"resident memory: {times.rss_before_bytes / 1e6:.0f} MB before, {times.rss_after_bytes / 1e6:.0f} MB after")
