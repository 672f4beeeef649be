"""The workloads of the menu: shared prefix, long prefill among decoders, preemption storm, random mix.

Each is fitted so that its mechanism is seen with few short requests: on a CPU, too, it is to be over in a minute. Where
the settings are in the way (a pool that could only be filled with more, no caching), `remedy` says which would do.
"""

from __future__ import annotations

import random
from typing import Any

from kvscope.analysis.workload_menu.workload import SEED, Figure, Figures, Workload, ceil_div, most_tokens
from kvscope.control import PlannedRequest
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.errors import UsageError

FILL_TOKENS = 4_096
"""The largest pool that a fitted workload fills."""

SMALL_POOL_TOKENS = 1_024
"""What a storm is made for where the pool is larger."""


# Shared prefix


def _fit_shared(config: SchedulerConfig) -> dict[str, int]:
    size, room = config.block_size, most_tokens(config)
    num_output = max(min(12, room // 6), 1)
    num_own = max(min(size, room // 6), 1)
    num_shared = min(6 * size, (room - num_output - num_own) // size * size)
    return {
        "num_requests": max(min(config.max_num_seqs, 8), 2),
        "num_shared_prompt_tokens": max(num_shared, 1),
        "num_own_prompt_tokens": num_own,
        "num_output_tokens": num_output,
        "seed": 0,
    }


def _shared(config: SchedulerConfig, figures: Figures) -> tuple[PlannedRequest, ...]:
    """The first one comes alone: the others find what it has computed."""
    num_shared, num_own = figures["num_shared_prompt_tokens"], figures["num_own_prompt_tokens"]
    num_steps = ceil_div(num_shared + num_own, config.token_budget)
    return tuple(
        PlannedRequest(
            request_id=f"shared-{number + 1}",
            num_shared_tokens=num_shared,
            num_own_tokens=num_own,
            num_output_tokens=figures["num_output_tokens"],
            before_step=num_steps if number else 0,
        )
        for number in range(figures["num_requests"])
    )


def _remedy_shared(config: SchedulerConfig, figures: Figures) -> dict[str, Any]:
    changes: dict[str, Any] = {} if config.enable_prefix_caching else {"enable_prefix_caching": True}
    num_shared = figures["num_shared_prompt_tokens"]
    if num_shared < config.block_size:  # only whole blocks are found
        changes["block_size"] = 1 << (num_shared.bit_length() - 1)
    return changes


# Long prefill among decoders


def _fit_long(config: SchedulerConfig) -> dict[str, int]:
    size, room, budget = config.block_size, most_tokens(config), config.token_budget
    num_decoders = max(min(config.max_num_seqs - 1, budget - 1, 4), 1)
    num_prompt = max(min(5 * budget // 2, FILL_TOKENS, room - 8), 1)
    num_chunks = ceil_div(num_prompt, max(budget - num_decoders, 1))
    num_output = num_chunks + 8
    num_blocks = config.num_gpu_blocks - 1 - num_decoders * ceil_div(_decoder_prompt(config) + num_output, size)
    return {
        "num_requests": num_decoders,
        "num_prompt_tokens": max(min(num_prompt, num_blocks * size - 8), 1),
        "num_output_tokens": num_output,
        "seed": 0,
    }


def _decoder_prompt(config: SchedulerConfig) -> int:
    return max(min(config.block_size, most_tokens(config) // 4), 1)


def _long(config: SchedulerConfig, figures: Figures) -> tuple[PlannedRequest, ...]:
    num_decoders, num_prompt = figures["num_requests"], _decoder_prompt(config)
    decoders = [
        PlannedRequest(
            request_id=f"decoder-{number + 1}",
            num_own_tokens=num_prompt,
            num_output_tokens=figures["num_output_tokens"],
        )
        for number in range(num_decoders)
    ]
    # When all of them decode.
    begin = ceil_div(num_decoders * num_prompt, config.token_budget) + 2
    return (
        *decoders,
        PlannedRequest(
            request_id="long-1", num_own_tokens=figures["num_prompt_tokens"], num_output_tokens=4, before_step=begin
        ),
    )


def _remedy_long(config: SchedulerConfig, figures: Figures) -> dict[str, Any]:
    """A budget of which the prompt needs three; the sequences must not be more than its tokens."""
    changes: dict[str, Any] = {} if config.enable_chunked_prefill else {"enable_chunked_prefill": True}
    if config.batching != "unified":
        changes["batching"] = "unified"
    if figures["num_prompt_tokens"] <= config.token_budget:
        budget = max(ceil_div(figures["num_prompt_tokens"], 3), figures["num_requests"] + 2)
        changes["max_num_batched_tokens"] = budget
        if config.max_num_seqs > budget:
            changes["max_num_seqs"] = budget
    if config.max_num_seqs < 2:
        changes["max_num_seqs"] = 4
    return changes


# Preemption storm


def _fit_storm(config: SchedulerConfig) -> dict[str, int]:
    """Half the pool for the prompts that run together, one and a half when they have written all."""
    size, room = config.block_size, most_tokens(config)
    num_blocks = config.num_gpu_blocks - 1
    if num_blocks * size > FILL_TOKENS:
        num_blocks = max(SMALL_POOL_TOKENS // size, 4)
    num_seqs = config.max_num_seqs if config.max_num_seqs > 1 else 8  # one alone preempts nobody
    num_running = max(min(num_seqs, 8, num_blocks), 1)
    wanted = ceil_div(3 * num_blocks, 2)
    if num_running * (room // size) < wanted:  # the longest that may be are too short for so few
        num_running = max(min(num_seqs, ceil_div(wanted * size, max(room, 1)) + 1), 1)
    num_total = max(min(ceil_div(wanted, num_running) * size, room), 2)
    num_prompt = max(min(num_blocks // (2 * num_running) * size, num_total - 1), 1)
    return {
        "num_requests": num_running + 2,
        "num_prompt_tokens": num_prompt,
        "num_output_tokens": num_total - num_prompt,
        "seed": 0,
    }


def _storm(config: SchedulerConfig, figures: Figures) -> tuple[PlannedRequest, ...]:
    return tuple(
        PlannedRequest(
            request_id=f"storm-{number + 1}",
            num_own_tokens=figures["num_prompt_tokens"],
            num_output_tokens=figures["num_output_tokens"],
        )
        for number in range(figures["num_requests"])
    )


def _remedy_storm(config: SchedulerConfig, figures: Figures) -> dict[str, Any]:
    """A pool of two thirds of what those that run together come to need, in which each of them fits alone."""
    size = config.block_size
    if config.max_num_seqs < 2:
        return {"max_num_seqs": 8}
    num_running = min(config.max_num_seqs, figures["num_requests"])
    num_blocks = ceil_div(figures["num_prompt_tokens"] + figures["num_output_tokens"], size)
    num_usable = max(num_running * num_blocks * 2 // 3, num_blocks)
    return {"num_gpu_blocks": num_usable + 1} if num_usable < config.num_gpu_blocks - 1 else {}


# Random mix


def _fit_mix(config: SchedulerConfig) -> dict[str, int]:
    room = most_tokens(config)
    return {
        "num_requests": 24,
        "max_prompt_tokens": max(min(6 * config.block_size, room // 2), 1),
        "max_output_tokens": max(min(24, room // 4), 1),
        "seed": 0,
    }


def _mix(config: SchedulerConfig, figures: Figures) -> tuple[PlannedRequest, ...]:
    """Half of them share a beginning; most come together, some a few steps later."""
    dice = random.Random(figures["seed"])
    num_shared = min(2 * config.block_size, figures["max_prompt_tokens"] // 2)
    requests, step = [], 0
    for number in range(figures["num_requests"]):
        step += dice.choice((0, 0, 0, 1, 2, 4)) if number else 0
        num_prompt = dice.randint(1, figures["max_prompt_tokens"])
        shares = num_prompt > num_shared and dice.random() < 0.5
        requests.append(
            PlannedRequest(
                request_id=f"mix-{number + 1}",
                num_shared_tokens=num_shared if shares else 0,
                num_own_tokens=num_prompt - (num_shared if shares else 0),
                num_output_tokens=dice.randint(1, figures["max_output_tokens"]),
                before_step=step,
                priority=dice.randint(0, 2) if config.policy == "priority" else 0,
            )
        )
    return tuple(requests)


_REQUESTS = "how many"
_OUTPUT = "tokens of each answer"

WORKLOADS = (
    Workload(
        name="shared_prefix",
        title="Shared prefix",
        what="One prompt, then others that begin with the same words.",
        mechanism="prefix cache hits",
        look_at="● in the step: whose blocks were hit, how many tokens that saved; in the pool, blocks with a count.",
        figures=(
            Figure("num_requests", _REQUESTS, 2),
            Figure("num_shared_prompt_tokens", "leading tokens, the same for all; whole blocks of them are found"),
            Figure("num_own_prompt_tokens", "tokens after those, others in each prompt"),
            Figure("num_output_tokens", _OUTPUT),
            SEED,
        ),
        fit=_fit_shared,
        requests=_shared,
        happens=lambda found: found.num_hit_tokens > 0,
        remedy=_remedy_shared,
    ),
    Workload(
        name="long_prefill",
        title="Long prefill among decoders",
        what="Some requests decode; then a prompt comes that is longer than a step's token budget.",
        mechanism="chunks beside decodes",
        look_at="tokens of the timeline: prefill on top of decode; ≈ in the step; enter on a decoder shows its gaps.",
        figures=(
            Figure("num_requests", "how many decode meanwhile"),
            Figure("num_prompt_tokens", "tokens of the long prompt"),
            Figure("num_output_tokens", "tokens of each decoder's answer"),
            SEED,
        ),
        fit=_fit_long,
        requests=_long,
        happens=lambda found: found.num_chunked_prompts > 0 and found.num_mixed_steps > 1,
        remedy=_remedy_long,
    ),
    Workload(
        name="preemption_storm",
        title="Preemption storm",
        what="Prompts that all fit, with answers that do not.",
        mechanism="preemptions",
        look_at="▲ on the timeline: {n} goes from one to the next; {w} on a victim says what it cost it.",
        figures=(
            Figure("num_requests", _REQUESTS, 2),
            Figure("num_prompt_tokens", "tokens of each prompt"),
            Figure("num_output_tokens", _OUTPUT),
            SEED,
        ),
        fit=_fit_storm,
        requests=_storm,
        happens=lambda found: found.num_preemptions > 0,
        remedy=_remedy_storm,
    ),
    Workload(
        name="random_mix",
        title="Random mix",
        what="Prompts and answers of random lengths, some with a shared beginning, at random steps.",
        mechanism="more than one request at a time",
        look_at="the queues while it runs ({s} sorts); {t} for figures, {w} on whoever waits.",
        figures=(
            Figure("num_requests", _REQUESTS, 2),
            Figure("max_prompt_tokens", "the longest prompt"),
            Figure("max_output_tokens", "the longest answer"),
            Figure("seed", "other lengths, steps and words", 0),
        ),
        fit=_fit_mix,
        requests=_mix,
        happens=lambda found: found.num_mixed_steps > 0,
        remedy=lambda config, figures: {},
    ),
)
"""In the menu's order."""


def find_workload(name: str) -> Workload:
    """Returns the workload of this name. Raises `UsageError`."""
    for workload in WORKLOADS:
        if workload.name == name.replace("-", "_"):
            return workload
    raise UsageError(f"there is no workload {name!r}: {', '.join(workload.name for workload in WORKLOADS)}")
