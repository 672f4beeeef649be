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
    running: Annotated[int | None, typer.Option(min=1, help="Requests that decode [256; with a model 32].")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of runs, on and off.")] = 5,
    steps: Annotated[int | None, typer.Option(min=10, help="Timed steps of a run [2000; with a model 100].")] = None,
    forward_ms: Annotated[float, typer.Option(min=0.0, help="Pause of a scripted step, as a model's.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Time steps with recording on and off, the hand-over on the engine's thread, and the size of a token."""
    from kvscope.cli.progress_line import ProgressLine
    from kvscope.session import bench_recorder
    from kvscope.session.bench_measure import this_machine
    from kvscope.session.options import EngineOptions

    progress = ProgressLine()

    def on_step(name: str, step: int, num_steps: int) -> None:
        progress.running(f"{name}: {step} of {num_steps} steps")

    if model is None:
        running, steps = running or 256, steps or 2_000
        case = f"{running} requests decode, scripted, {forward_ms:g} ms a forward pass"
        times = bench_recorder.measure_scripted(
            pairs, steps, forward_ms=forward_ms, num_running=running, on_step=on_step
        )
    else:
        running, steps = running or 32, steps or 100
        case = f"{running} requests decode, {model}"
        settings = {"max_num_seqs": running, "max_model_len": 1_024, "num_gpu_blocks": running * 32 + 1}
        options = EngineOptions(model=model, settings=settings)
        times = bench_recorder.measure_model(options, pairs, steps, num_running=running, on_step=on_step)
    progress.clear()
    machine = this_machine(has_torch=model is not None)
    found = _as_json(times, case, steps)
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
    print(
        f"  bytes a token     {found['bytes_per_token']}   ({found['num_bytes']:,} of {found['num_tokens']:,} tokens)"
    )
