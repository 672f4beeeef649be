"""`kvscope simulate` of a trace of real traffic."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvscope.engine.scheduling.config import SchedulerConfig
    from kvscope.session.trace import TraceRequest
    from kvscope.session.trace_run import TraceOutcome

_DEFAULTS: dict[str, Any] = {
    "num_gpu_blocks": 65_536,
    "block_size": 16,
    "max_num_batched_tokens": 8_192,
    "max_num_seqs": 256,
}
"""A GPU with room for a million tokens; `max_model_len` is what the longest request asks for."""


def simulate_trace(
    path: Path,
    record: Path | None,
    settings: Sequence[tuple[str, Any]],
    *,
    max_requests: int | None,
    step_ms: float,
    token_us: float,
    as_json: bool,
) -> None:
    """Runs the trace, and prints what came of it. Raises `UsageError` for a trace or setting that cannot be."""
    from kvscope.cli.progress_line import ProgressLine
    from kvscope.session.trace import load_trace
    from kvscope.session.trace_run import StepClock, simulate_trace

    trace = load_trace(path, max_requests)
    config = _config(trace, dict(settings))
    progress = ProgressLine()

    def on_step(outcome: TraceOutcome) -> None:
        if outcome.num_steps % 100 == 0:
            progress.running(f"step {outcome.num_steps:,}: {outcome.num_requests:,} of {len(trace):,} requests done")

    clock = StepClock(step_ns=int(step_ms * 1e6), token_ns=int(token_us * 1e3))
    begin = time.perf_counter()
    outcome = simulate_trace(trace, config, record, clock=clock, on_step=on_step)
    wall_s = time.perf_counter() - begin
    progress.clear()
    if as_json:
        print(json.dumps(_as_json(path, config, outcome, record, wall_s), ensure_ascii=False))
    else:
        _print(outcome, record, wall_s)


def _config(trace: Sequence[TraceRequest], given: dict[str, Any]) -> SchedulerConfig:
    from kvscope.engine import settings
    from kvscope.errors import UsageError

    longest = max(request.num_prompt_tokens + request.num_output_tokens for request in trace)
    config = settings.scheduler_config({**_DEFAULTS, "max_model_len": longest, **given})
    num_slots = (config.num_gpu_blocks - 1) * config.block_size
    if longest > min(config.max_model_len, num_slots):
        raise UsageError(
            f"the longest request of the trace has {longest:,} tokens, more than "
            + (
                f"max_model_len ({config.max_model_len:,}): leave it out"
                if longest > config.max_model_len
                else f"the pool holds ({num_slots:,}): --set num_gpu_blocks={longest // config.block_size + 2}"
            )
        )
    return config


def _as_json(
    path: Path, config: SchedulerConfig, outcome: TraceOutcome, record: Path | None, wall_s: float
) -> dict[str, Any]:
    import dataclasses

    return {
        "trace": str(path),
        **dataclasses.asdict(outcome),
        "wall_s": round(wall_s, 3),
        "settings": config.as_settings(),
        "recording": None if record is None else str(record),
    }


def _print(outcome: TraceOutcome, record: Path | None, wall_s: float) -> None:
    hit = outcome.num_hit_tokens / outcome.num_prompt_tokens
    print(f"{outcome.num_requests:,} requests, {outcome.num_prompt_tokens:,} prompt and ", end="")
    print(f"{outcome.num_output_tokens:,} output tokens in {outcome.num_steps:,} steps of {outcome.simulated_s:,.0f} s")
    print(
        f"{outcome.num_scheduled_tokens:,} tokens computed, {outcome.num_hit_tokens:,} hit ({hit:.1%} of the ", end=""
    )
    print(f"prompts'), {outcome.num_preemptions:,} preemptions; simulated in {wall_s:.1f} s")
    if record is not None:
        print(f"recorded in {record}")
