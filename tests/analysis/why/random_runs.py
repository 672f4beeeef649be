"""Random small scenarios with tight pools, the same for the same seed."""

from __future__ import annotations

import random

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.scenario import Scenario, ScenarioRequest

MAX_STEPS = 120


def random_scenario(seed: int) -> Scenario:
    """Returns a scenario in which requests are likely to wait, for all kinds of reasons."""
    rng = random.Random(seed)
    block_size = rng.choice((2, 4, 4, 8))
    max_model_len = rng.choice((48, 64))
    is_chunking = rng.random() < 0.8
    num_spec_tokens = rng.choice((0, 0, 0, 2))
    budget = rng.choice((6, 8, 12, 16, 32, 64)) if is_chunking else max_model_len
    config = SchedulerConfig(
        num_gpu_blocks=rng.randint(max_model_len // block_size // 2, 2 * max_model_len // block_size) + 1,
        block_size=block_size,
        max_num_batched_tokens=budget,
        max_num_seqs=rng.randint(1, 6),
        max_model_len=max_model_len,
        enable_prefix_caching=rng.random() < 0.7,
        enable_chunked_prefill=is_chunking,
        policy=rng.choice(("fcfs", "fcfs", "priority")),
        watermark=rng.choice((0.0, 0.0, 0.1, 0.3)),
        scheduler_reserve_full_isl=rng.random() < 0.6,
        long_prefill_token_threshold=rng.choice((0, 0, 0, 3, 6)),
        num_spec_tokens=num_spec_tokens,
        num_lookahead_tokens=rng.choice((None, num_spec_tokens)),
    )
    prefix = [rng.randint(1, 9) for _ in range(24)]
    requests = tuple(_request(rng, index, prefix, config) for index in range(rng.randint(4, 10)))
    return Scenario(name=f"random {seed}", config=config, requests=requests, max_steps=MAX_STEPS)


def _request(rng: random.Random, index: int, prefix: list[int], config: SchedulerConfig) -> ScenarioRequest:
    num_shared = rng.choice((0, 0, rng.randint(1, len(prefix))))
    num_prompt = rng.randint(max(num_shared, 1), 36)
    prompt = [*prefix[:num_shared], *(rng.randint(10, 99) for _ in range(num_prompt - num_shared))]
    output = [rng.randint(1, 99) for _ in range(config.max_model_len)]
    drafts = [
        tuple(output[at + 1 : at + 1 + rng.randint(0, 2)]) if rng.random() < 0.5 else (5, 5)
        for at in range(8 if config.num_spec_tokens else 0)
    ]
    return ScenarioRequest(
        id=f"r{index}",
        arrival_step=rng.choice((0, 0, rng.randint(0, 12))),
        arrival_time=float(index),
        prompt_token_ids=tuple(prompt),
        max_tokens=rng.randint(1, 12),
        output_token_ids=tuple(output),
        priority=rng.randint(0, 2),
        cancel_step=rng.randint(3, 20) if rng.random() < 0.1 else None,
        drafts=tuple(drafts),
    )
