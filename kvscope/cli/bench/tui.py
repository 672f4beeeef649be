"""`kvscope bench tui`: from a key to the painted screen, replay and live, and a recording of a million steps."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvscope.cli.bench.seek import recording_as_json, recording_line

if TYPE_CHECKING:
    from kvscope.session.bench_screen import ScreenTimes

_BUDGETS_MS = {"120x40": 50.0, "200x55": 80.0}
"""Of p99, at the sizes that have one."""
_MODES = ("replay", "live", "long")


def register(bench: typer.Typer) -> None:
    """Adds the command."""
    bench.command()(tui)


def tui(
    modes: Annotated[
        list[str] | None, typer.Option("--mode", help="replay, live or long (a million steps) [all three].")
    ] = None,
    sizes: Annotated[list[str] | None, typer.Option("--size", help="Columns x rows [120x40 and 200x55].")] = None,
    keys: Annotated[int, typer.Option(min=10, help="Keys of each mode and size.")] = 200,
    gotos: Annotated[int, typer.Option(min=1, help="Jumps to any step, where nothing runs.")] = 50,
    recording: Annotated[
        Path | None, typer.Option(help="The long recording [one that is made once, and kept in the cache folder].")
    ] = None,
    steps: Annotated[int, typer.Option(min=1_000, help="Steps of the long recording that is made.")] = 1_000_000,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each mode and size.")] = False,
) -> None:
    """Time keys in a terminal of its own: 256 requests, 32,768 blocks; then a recording of a million steps.

    A key is painted with the last byte of the burst of output that brings its effect. Live: a process with scheduler
    and recorder, at work on all processors, writes the recording meanwhile.
    """
    from kvscope.cli.progress_line import ProgressLine
    from kvscope.errors import UsageError
    from kvscope.session import bench_recording, bench_screen
    from kvscope.session.bench_measure import this_machine

    chosen = tuple(modes or _MODES)
    if unknown := [mode for mode in chosen if mode not in _MODES]:
        raise UsageError(f"--mode {unknown[0]}: choose of {', '.join(_MODES)}")
    try:
        terminals = [bench_screen.Size.parse(text) for text in sizes or _BUDGETS_MS]
    except ValueError:
        raise UsageError("--size is written as 120x40: columns, an x, rows") from None
    progress = ProgressLine()
    machine = this_machine()
    if not as_json:
        print(*machine.lines(), sep="\n", flush=True)

    def on_step(step: int, num_steps: int) -> None:
        progress.running(f"recording: step {step:,} of {num_steps:,}")

    for mode in chosen:
        made = None
        if mode == "replay":
            made = bench_recording.full_screen(on_step=on_step)
        elif mode == "long":
            made = bench_recording.service_day(steps, recording, on_step=on_step)
        for size in terminals:

            def on_key(num_keys: int, title: str = f"{mode}, {size}") -> None:
                progress.running(f"{title}: {num_keys} keys")

            if made is None:
                times = bench_screen.measure_live(size, keys, on_key)
            else:
                times = bench_screen.measure_replay(made.path, size, keys, gotos, on_key)
            progress.clear()
            if as_json:
                found: dict[str, Any] = {
                    "benchmark": "tui",
                    "mode": mode,
                    "size": str(size),
                    "machine": machine.as_json(),
                }
                found["recording"] = None if made is None else recording_as_json(made)
                print(json.dumps(found | _as_json(times), ensure_ascii=False), flush=True)
            else:
                if made is not None and size is terminals[0]:
                    print(recording_line(made, times.num_steps))
                _print(f"{mode}, {size}", times, _BUDGETS_MS.get(str(size)))


def _by_kind(times: ScreenTimes) -> dict[str, tuple[list[float], list[float]]]:
    """Returns latencies and processor times by the kind of key; `keys` are all but the jumps."""
    found: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for key in times.keys:
        for kind in (key.kind,) if key.kind == "goto" else ("keys", key.kind):
            found[kind][0].append(key.latency_ms)
            found[kind][1].append(key.cpu_ms)
    return dict(found)


def _as_json(times: ScreenTimes) -> dict[str, Any]:
    from kvscope.session.bench_measure import latencies

    kinds = _by_kind(times)
    return {
        "num_steps": times.num_steps,
        "latency_ms": {kind: latencies(values).as_json() for kind, (values, _) in kinds.items()},
        "cpu_ms": {kind: latencies(values).as_json() for kind, (_, values) in kinds.items()},
        "first_paint_s": round(times.first_paint_s, 3),
        "rss_before_bytes": times.rss_before_bytes,
        "rss_after_bytes": times.rss_after_bytes,
    }


def _print(title: str, times: ScreenTimes, budget_ms: float | None) -> None:
    from kvscope.session.bench_measure import latencies

    print(f"{title}: first screen {times.first_paint_s:.2f} s after the start, ", end="")
    print(f"{times.rss_before_bytes / 1e6:.0f} MB resident before the keys, {times.rss_after_bytes / 1e6:.0f} after")
    print(f"  {'ms':<8}{'keys':>6}{'p50':>8}{'p90':>8}{'p99':>8}{'worst':>8}{'cpu p50':>10}{'cpu p99':>9}")
    for kind, (values, cpu_values) in sorted(_by_kind(times).items()):
        wall, cpu = latencies(values), latencies(cpu_values)
        row = f"  {kind:<8}{wall.num_values:>6}{wall.p50:>8.1f}{wall.p90:>8.1f}{wall.p99:>8.1f}{wall.worst:>8.1f}"
        row += f"{cpu.p50:>10.1f}{cpu.p99:>9.1f}"
        if kind == "keys" and budget_ms is not None:
            row += f"  {'within' if wall.p99 <= budget_ms else 'over'} {budget_ms:.0f} ms"
        print(row, flush=True)
