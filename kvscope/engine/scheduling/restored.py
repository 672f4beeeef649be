"""A scheduler as it stood before some step, made anew from the reduced state, so that the step can be run once more.

The restored scheduler decides as the recorded one did, and, with another setting or without one of the requests, as
that one would have. What a step's decisions do not depend on (sampling, stop tokens) is not restored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvscope.engine.scheduling.batching import new_scheduler
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.request import Request, RequestStatus, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler
from kvscope.state import EngineState, RequestState


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All that the decisions of a step depend on: what was true before it was scheduled."""

    state: EngineState
    """After the step's arrivals and aborts, before its schedule; never changed here."""
    token_ids: Mapping[str, Sequence[int]]
    """Prompt and output of every live request."""
    block_hashes: Mapping[int, bytes]
    """The chain hash of every published block."""


def restored_scheduler(config: SchedulerConfig, standing: Standing) -> Scheduler:
    """Returns a scheduler whose next `schedule()` runs the step.

    A pool that is larger than the recorded one has its further blocks at the tail of the free queue, empty; the
    recorded one is the smallest that can be restored. With `batching="static"` the batch under way is not known and is
    taken as closed.
    """
    state = standing.state
    scheduler = new_scheduler(config)
    scheduler.step = state.step - 1
    _restore_pool(scheduler, standing)
    for request_id in state.running:
        request = _request(state.requests[request_id], standing.token_ids[request_id])
        scheduler.requests[request_id] = request
        scheduler.running.append(request)
    for request_id in _waiting_order(config, state):
        request = _request(state.requests[request_id], standing.token_ids[request_id])
        scheduler.requests[request_id] = request
        scheduler.waiting.add(request)
    return scheduler


def _waiting_order(config: SchedulerConfig, state: EngineState) -> list[str]:
    """Returns the waiting requests as the policy has them: by arrival where the recorded queue went by priority."""
    if config.policy == "fcfs" and state.config is not None and state.config.settings.get("policy") == "priority":
        requests = [state.requests[request_id] for request_id in state.waiting]
        return [request.request_id for request in sorted(requests, key=lambda request: request.arrival_time)]
    return state.waiting


def _restore_pool(scheduler: Scheduler, standing: Standing) -> None:
    state, pool = standing.state, scheduler.kv_cache_manager.pool
    num_recorded, num_wanted = len(state.ref_cnts), len(pool.ref_cnts)
    assert num_wanted >= num_recorded, "blocks that are in use cannot be taken away"
    pool.ref_cnts = [*state.ref_cnts, *[0] * (num_wanted - num_recorded)]
    pool.free_queue = OrderedDict.fromkeys([*state.free_queue, *range(num_recorded, num_wanted)])
    pool.block_hashes = dict(standing.block_hashes)
    for block_id in standing.block_hashes:
        pool.computed_by[block_id] = state.cached_from[block_id][0]
    cached = pool.cached_blocks
    for block_id, block_hash in standing.block_hashes.items():
        group = state.duplicate_groups.get(block_id)
        if group is None:
            cached[block_hash] = block_id
        elif block_hash not in cached:
            cached[block_hash] = dict(group)


def _request(recorded: RequestState, token_ids: Sequence[int]) -> Request:
    request = Request(
        recorded.request_id,
        list(token_ids[: recorded.num_prompt_tokens]),
        SamplingParams(max_tokens=recorded.max_tokens),
        arrival_time=recorded.arrival_time,
        priority=recorded.priority,
        cache_salt=recorded.cache_salt,
        lora_name=recorded.lora_name,
    )
    request.all_token_ids = list(token_ids[: recorded.num_tokens])
    request.status = RequestStatus[recorded.status]
    request.num_computed_tokens = recorded.num_computed_tokens
    request.block_ids = list(recorded.block_ids)
    request.num_cached_blocks = recorded.num_cached_blocks or None
    request.spec_token_ids = list(recorded.draft_token_ids)
    request.num_preemptions = recorded.num_preemptions
    # It has sampled since its admission if and only if its prefill is through.
    is_running = request.status is RequestStatus.RUNNING
    request.is_prefill_chunk = is_running and recorded.num_tokens == recorded.num_prefill_tokens
    return request
