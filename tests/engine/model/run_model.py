"""Runs prompts through scheduler and model runner: schedule, execute, update, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvscope.engine.model.attention import Span, build_metadata
from kvscope.engine.model.loader import Model
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunner
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler

_MAX_STEPS = 3000


@dataclass
class Outcome:
    """What a run did, as far as tests look at it."""

    output_token_ids: list[list[int]]
    num_preemptions: int
    num_hit_tokens: int
    num_chunks: int
    """Prompt chunks that did not reach the end of their prompt."""


def make_request(model: Model, request_id: str, prompt: Sequence[int], sampling: SamplingParams) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        sampling=sampling,
        eos_token_ids=model.eos_token_ids,
    )


def run_prompts(
    model: Model,
    prompts: Sequence[Sequence[int]],
    config: SchedulerConfig,
    *,
    max_tokens: int,
    ignore_eos: bool = True,
    runner: ModelRunner | None = None,
) -> Outcome:
    """Submits all prompts at once, greedy, and steps until all are done."""
    scheduler = Scheduler(config)
    runner = runner or model.new_runner(num_blocks=config.num_gpu_blocks, block_size=config.block_size)
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=ignore_eos)
    requests = [make_request(model, str(i), prompt, sampling) for i, prompt in enumerate(prompts)]
    for request in requests:
        scheduler.add_request(request)
    num_hit_tokens = num_chunks = 0
    seen: dict[str, int] = {}
    for _ in range(_MAX_STEPS):
        if not scheduler.has_unfinished_requests():
            break
        output = scheduler.schedule()
        for request, count in zip(output.requests, output.num_scheduled_tokens, strict=True):
            begin = request.num_computed_tokens - count
            # A request that starts behind its first token, and not where it had come to, starts behind a cached prefix.
            if begin > 0 and begin != seen.get(request.request_id, 0):
                num_hit_tokens += begin
            seen[request.request_id] = request.num_computed_tokens
            num_chunks += request.num_computed_tokens < request.num_tokens
        for request_id in output.preempted_request_ids:
            seen[request_id] = 0
        scheduler.update_from_output(output, runner.execute(output))
    assert not scheduler.has_unfinished_requests(), f"not done after {_MAX_STEPS} steps"
    return Outcome(
        output_token_ids=[request.output_token_ids for request in requests],
        num_preemptions=sum(request.num_preemptions for request in requests),
        num_hit_tokens=num_hit_tokens,
        num_chunks=num_chunks,
    )


@torch.inference_mode()
def all_logits(runner: TorchModelRunner, token_ids: Sequence[int], first_block_id: int = 1) -> torch.Tensor:
    """Returns the logits of every position, `[num_tokens, vocab_size]`, computed in one prefill."""
    cache = runner.kv_cache
    num_tokens = len(token_ids)
    block_ids = range(first_block_id, first_block_id + -(-num_tokens // cache.block_size))
    metadata = build_metadata([Span(0, num_tokens, block_ids)], cache)
    hidden = runner.decoder.forward(torch.tensor(token_ids), torch.arange(num_tokens), cache, metadata)
    return runner.decoder.logits(hidden)
