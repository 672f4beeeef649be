"""Runs a trace of real traffic through the scheduler: arrivals by the clock, which runs by what a step has to compute.

No model: a step takes a fixed time and some more for each token, which is the caller's to choose; what comes out is
what the scheduler decides under that clock, not what any machine would take.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvscope.engine.scheduling.batching import new_scheduler
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunnerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.events import EngineConfigured, EventSink, NullSink, StepFinished
from kvscope.recording import Recorder
from kvscope.session.trace import TraceRequest

OUTPUT_TOKEN = 7
"""What every request generates: a trace says how much, not what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepClock:
    """How long a step takes."""

    step_ns: int = 8_000_000
    token_ns: int = 20_000
    """Of each scheduled token."""


@dataclass(slots=True, kw_only=True)
class TraceOutcome:
    """How a trace ran."""

    num_steps: int = 0
    num_requests: int = 0
    num_prompt_tokens: int = 0
    num_scheduled_tokens: int = 0
    num_hit_tokens: int = 0
    num_output_tokens: int = 0
    num_preemptions: int = 0
    simulated_s: float = 0.0


def simulate_trace(
    trace: Sequence[TraceRequest],
    config: SchedulerConfig,
    recording: Path | None,
    *,
    clock: StepClock,
    on_step: Callable[[TraceOutcome], None],
) -> TraceOutcome:
    """As `run_trace`, recorded in a file that must not exist yet. Raises `RecordingError`."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_rare_collections())
        sink = NullSink() if recording is None else stack.enter_context(Recorder(recording, in_own_process=True))
        return run_trace(trace, config, sink, clock=clock, on_step=on_step)


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Events are many short tuples without cycles: looking through them as often as usual takes a sixth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run_trace(
    trace: Sequence[TraceRequest],
    config: SchedulerConfig,
    sink: EventSink | None = None,
    *,
    clock: StepClock | None = None,
    on_step: Callable[[TraceOutcome], None] = lambda outcome: None,
) -> TraceOutcome:
    """Runs all requests to their ends. `config.max_model_len` and the pool must hold the longest of them."""
    sink, clock, outcome = sink or NullSink(), clock or StepClock(), TraceOutcome()
    now_ns = 0
    scheduler = new_scheduler(config, is_recording=sink.is_recording, clock_ns=lambda: now_ns)
    next_index = 0
    while next_index < len(trace) or scheduler.requests:
        if not scheduler.requests:
            now_ns = max(now_ns, trace[next_index].arrival_ns)
        while next_index < len(trace) and trace[next_index].arrival_ns <= now_ns:
            scheduler.add_request(_new_request(next_index, trace[next_index]))
            next_index += 1
        output = scheduler.schedule()
        sampled = [[] if request.is_prefill_chunk else [OUTPUT_TOKEN] for request in output.requests]
        result = scheduler.update_from_output(output, ModelRunnerOutput(sampled_token_ids=sampled))
        num_tokens = output.total_num_scheduled_tokens
        forward_ns = clock.step_ns + num_tokens * clock.token_ns
        if sink.is_recording:
            events = scheduler.take_events()
            if outcome.num_steps == 0:
                events.insert(0, _configured(config))
            events.append(StepFinished(forward_ns=forward_ns))
            sink.write_step(outcome.num_steps, events)
        now_ns += forward_ns
        outcome.num_steps += 1
        outcome.num_scheduled_tokens += num_tokens
        outcome.num_preemptions += len(output.preempted_request_ids)
        for request in result.finished:
            outcome.num_requests += 1
            outcome.num_prompt_tokens += request.num_prompt_tokens
            outcome.num_hit_tokens += request.num_hit_tokens
            outcome.num_output_tokens += request.num_output_tokens
        outcome.simulated_s = now_ns / 1e9
        on_step(outcome)
    return outcome


def _new_request(index: int, entry: TraceRequest) -> Request:
    return Request(
        request_id=f"req-{index}",
        prompt_token_ids=entry.prompt(),
        sampling=SamplingParams(temperature=0.0, max_tokens=entry.num_output_tokens, ignore_eos=True),
        arrival_time=entry.arrival_s,
        arrival_ns=entry.arrival_ns,
    )


def _configured(config: SchedulerConfig) -> EngineConfigured:
    return EngineConfigured(
        model="scripted",
        device="none",
        dtype="none",
        settings=config.as_settings(),
        num_gpu_blocks=config.num_gpu_blocks,
        block_size=config.block_size,
        watermark_blocks=config.watermark_blocks,
    )
