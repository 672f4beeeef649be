"""Requests and steps for the engine's checks: through the scheduler, or one decode step after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks.gpu.setup import BLOCK_SIZE, Setup
from kvscope.engine.scheduling.output import ModelRunner, SchedulerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams


def random_prompts(setup: Setup, lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Returns prompts of random tokens."""
    generator = torch.Generator().manual_seed(seed)
    vocab_size = setup.config.vocab_size
    return [torch.randint(0, vocab_size, (length,), generator=generator).tolist() for length in lengths]


def new_request(name: str, prompt: list[int], num_output_tokens: int) -> Request:
    """Returns a greedy request that ends with its length."""
    return Request(name, prompt, SamplingParams(temperature=0, max_tokens=num_output_tokens, ignore_eos=True))


def decoding(num_requests: int, num_context_tokens: int, num_steps: int, setup: Setup) -> list[Request]:
    """Returns requests that have so many tokens and blocks for the steps to come; what the cache holds is left open."""
    blocks_each = -(-(num_context_tokens + num_steps) // BLOCK_SIZE)
    requests = []
    for index, prompt in enumerate(random_prompts(setup, [num_context_tokens] * num_requests)):
        request = new_request(str(index), prompt, num_steps)
        request.num_computed_tokens = num_context_tokens - 1
        request.block_ids = list(range(1 + index * blocks_each, 1 + (index + 1) * blocks_each))
        requests.append(request)
    return requests


def decode_step(runner: ModelRunner, requests: Sequence[Request]) -> list[list[int]]:
    """Makes one step of them all, and appends the tokens."""
    for request in requests:
        request.num_computed_tokens += 1
    output = SchedulerOutput(step=0, requests=list(requests), num_scheduled_tokens=[1] * len(requests))
    sampled = runner.execute(output).sampled_token_ids
    for request, token_ids in zip(requests, sampled, strict=True):
        request.all_token_ids += token_ids
    return sampled


def forget(runner: ModelRunner, requests: Sequence[Request]) -> None:
    """Tells the runner that they ended."""
    runner.execute(SchedulerOutput(0, [], [], finished_request_ids=[request.request_id for request in requests]))
