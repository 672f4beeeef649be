"""`kvscope bench recorder`: the same work with recording on and off, in turns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kvscope.session.bench_recorder import RecorderTimes


def register(bench: typer.Typer) -> None:
    """Adds the command."""
    bench.command()(recorder)


def recorder(
    model: Annotated[str | None, typer.Option(help="Let this model compute [scripted tokens and a pause].")] = None,
    running: Annotated[int, typer.Option(min=1, help="Requests that decode.")] = 256,
    pairs: Annotated[int, typer.Option(min=1, help="Turns of each, on and off.")] = 40,
    steps: Annotated[int | None, typer.Option(min=1, help="Timed steps of a turn [100; with a model 4].")] = None,
    forward_ms: Annotated[float, typer.Option(min=0.0, help="Pause of a scripted step, as a model's.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Time steps with recording on and off, the hand-over on the engine's thread, and the size of a token.

    Two engines take turns of a few steps each. "At most 2 %" is said where the whole 95 % interval of the mean ratio
    lies below. Takes a minute; with a model of 135 M parameters on two cores three to four.
    """
    from kvscope.cli.progress_line import ProgressLine
    from kvscope.session import bench_recorder
    from kvscope.session.bench_measure import this_machine
    from kvscope.session.options import EngineOptions

    progress = ProgressLine()

    def on_turn(num_done: int, num_pairs: int, what: str) -> None:
        progress.running(f"{num_done} of {num_pairs} pairs done: {what}")

    turns = bench_recorder.Turns(num_pairs=pairs, num_steps=steps or (100 if model is None else 4))
    if model is None:
        case = f"{running} requests decode, scripted, {forward_ms:g} ms a forward pass"
        times = bench_recorder.measure_scripted(turns, forward_ms=forward_ms, num_running=running, on_turn=on_turn)
    else:
        case = f"{running} requests decode, {model}"
        options = EngineOptions(model=model)
        times = bench_recorder.measure_model(options, turns, num_running=running, on_turn=on_turn)
    progress.clear()
    machine = this_machine(has_torch=model is not None)
    found = _as_json(times, case, turns.num_steps)
    if as_json:
        print(json.dumps({"benchmark": "recorder", "machine": machine.as_json()} | found, ensure_ascii=False))
    else:
        print(*machine.lines(), sep="\n")
        _print(times, found)


def _as_json(times: RecorderTimes, case: str, num_steps: int) -> dict[str, Any]:
    from kvscope.session.bench_measure import latencies, ratio

    return {
        "case": case,
        "num_steps": num_steps,
        "on_us": [round(value, 1) for value in times.on_us],
        "off_us": [round(value, 1) for value in times.off_us],
        "on_over_off": ratio(times.on_us, times.off_us).as_json(),
        "hand_over_us": latencies(times.hand_over_us).as_json(),
        "left_ms": latencies(times.left_ms).as_json(),
        "bytes_per_token": round(times.num_bytes / times.num_tokens, 2),
        "num_tokens": times.num_tokens,
        "num_bytes": times.num_bytes,
    }


def _print(times: RecorderTimes, found: dict[str, Any]) -> None:
    import statistics

    from kvscope.session.bench_measure import ratio

    hand_over = found["hand_over_us"]
    print(f"{found['case']}; {len(times.on_us)} pairs of {found['num_steps']} steps")
    print(f"  a step, µs        on {statistics.median(times.on_us):,.0f}   off {statistics.median(times.off_us):,.0f}")
    compared = ratio(times.on_us, times.off_us)
    print(f"  on / off          {compared}")
    if compared.num_pairs > 1:
        verdict = "at most 2 % is shown" if compared.high <= 1.02 else "at most 2 % is not shown by these runs"
        print(f"                    {verdict} (95 % interval up to {compared.high - 1:+.1%})")
    print(
        f"  hand-over, µs     p50 {hand_over['p50']:.1f}   p99 {hand_over['p99']:.1f}   worst {hand_over['worst']:.0f}"
    )
    left = found["left_ms"]
    print(f"  on disk, ms after a turn   p50 {left['p50']:.1f}   p99 {left['p99']:.1f}   worst {left['worst']:.1f}")
    print(
        f"  bytes a token     {found['bytes_per_token']}   ({found['num_bytes']:,} of {found['num_tokens']:,} tokens)"
    )
