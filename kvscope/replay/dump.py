"""Turns events into the step records that `kvscope dump` prints: the field names of a golden run's trace step.

A record is what the events say and what the reducer makes of them; nothing is decided here. Knows no file: any
sequence of `(step, events)` from the first step on will do, and a sequence that starts later needs the state before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kvscope import events as ev
from kvscope.state import EngineState

StepRecord = dict[str, Any]

_TRACE_REASONS = {"stop": "STOP", "length": "LENGTH", "abort": "ABORT", "error": "ERROR"}


def dump_steps(
    steps: Iterable[tuple[int, Sequence[ev.Event]]], state: EngineState | None = None
) -> Iterator[StepRecord]:
    """Yields one record a step. `state` is the state before the first of them (folded on, not copied); None is a start.

    Raises `StateError` where an event contradicts the state.
    """
    state = EngineState() if state is None else state
    for step, events in steps:
        state.begin_step(step)
        yield _step_record(state, events)


def _step_record(state: EngineState, events: Sequence[ev.Event]) -> StepRecord:
    """Folds one step into `state` and returns its record."""
    record = _empty_record(state.step)
    for event in events:
        if isinstance(event, ev.StepStarted):
            record["before"] = _progress(state)
        state.apply(event)
        if isinstance(event, ev.TokensScheduled):
            record["after_schedule"] = _books(state)
        _note(record, event)
    config = state.config
    if config is not None and not config.settings.get("enable_prefix_caching", True):
        record["prefix_cache_stats"] = dict.fromkeys(record["prefix_cache_stats"], 0)
    after = _books(state)
    if record["after_schedule"] is None:  # the step raised before it was scheduled
        record["after_schedule"] = after
    record["after_update"] = {key: value for key, value in after.items() if value != record["after_schedule"][key]}
    return record


def _empty_record(step: int) -> StepRecord:
    """Returns a record in the field order of the golden runs."""
    return {
        "step": step,
        "arrived": [],
        "cancelled": [],
        "cancelled_mid": [],
        "before": None,
        "num_scheduled_tokens": {},
        "scheduled_spec_tokens": {},
        "preempted": [],
        "new": [],
        "resumed": [],
        "prefix_hit_tokens": {},
        "lookups": [],
        "alloc_fail": [],
        "evicted_blocks": [],
        "waiting_stop": None,
        "token_budget_left": None,
        "after_schedule": None,
        "sampled": {},
        "finished": [],
        "prefix_cache_stats": {
            "requests": 0,
            "queries": 0,
            "hits": 0,
            "preempted_requests": 0,
            "preempted_queries": 0,
            "preempted_hits": 0,
        },
        "after_update": {},
    }


def _note(record: StepRecord, event: ev.Event) -> None:
    """Adds to the record what the event says by itself."""
    match event:
        case ev.RequestArrived():
            record["arrived"].append(event.request_id)
        case ev.RequestAborted():
            key = "cancelled_mid" if event.during_execution else "cancelled"
            record[key].append([event.request_id, event.status])
        case ev.PrefixLookedUp():
            record["lookups"].append([event.request_id, event.num_hit_tokens])
        case ev.AllocationFailed():
            record["alloc_fail"].append(
                {
                    "id": event.request_id,
                    "phase": event.phase,
                    "reason": event.reason,
                    "need_step": event.need_step,
                    "need_full": event.need_full,
                    "free": event.num_free_blocks,
                    "watermark": event.watermark_blocks,
                }
            )
        case ev.AdmissionEnded():
            record["waiting_stop"] = event.reason
            record["token_budget_left"] = event.token_budget_left
        case ev.RequestAdmitted() | ev.RequestResumed():
            _note_admission(record, event)
        case ev.RequestPreempted():
            record["preempted"].append(event.request_id)
        case ev.BlockEvicted():
            record["evicted_blocks"].extend(event.block_ids)
        case ev.TokensScheduled():
            record["num_scheduled_tokens"] = dict(zip(event.request_ids, event.num_tokens, strict=True))
            record["scheduled_spec_tokens"] = {key: list(drafts) for key, drafts in event.draft_token_ids.items()}
        case ev.TokensSampled():
            record["sampled"] = _tokens_by_request(event)
        case ev.RequestFinished():
            record["finished"].append([event.request_id, _TRACE_REASONS[event.reason]])
        case ev.StepFailed():
            record["failed"] = {"phase": event.phase, "error_type": event.error_type, "message": event.message}
        case _:
            pass


def _note_admission(record: StepRecord, event: ev.RequestAdmitted | ev.RequestResumed) -> None:
    is_first = isinstance(event, ev.RequestAdmitted)
    record["new" if is_first else "resumed"].append(event.request_id)
    record["prefix_hit_tokens"][event.request_id] = event.num_hit_tokens
    stats, prefix = record["prefix_cache_stats"], "" if is_first else "preempted_"
    stats[f"{prefix}requests"] += 1
    stats[f"{prefix}queries"] += event.num_tokens
    stats[f"{prefix}hits"] += event.num_hit_tokens


def _tokens_by_request(event: ev.TokensSampled) -> dict[str, list[int]]:
    if event.num_tokens is None:
        return {key: [token_id] for key, token_id in zip(event.request_ids, event.token_ids, strict=True)}
    tokens = iter(event.token_ids)
    return {
        key: [next(tokens) for _ in range(count)]
        for key, count in zip(event.request_ids, event.num_tokens, strict=True)
        if count
    }


def _progress(state: EngineState) -> dict[str, Any]:
    """Returns queues and computed tokens before the step is scheduled."""
    return {
        "waiting": list(state.waiting),
        "running": list(state.running),
        "num_computed_tokens": {key: state.requests[key].num_computed_tokens for key in _live_ids(state)},
    }


def _books(state: EngineState) -> dict[str, Any]:
    """Returns queues, pool and block tables as they stand."""
    requests, live = state.requests, _live_ids(state)
    groups = {id(group): list(group) for group in state.duplicate_groups.values()}
    return {
        "waiting": list(state.waiting),
        "running": list(state.running),
        "num_free_blocks": state.num_free_blocks,
        "free_queue": list(state.free_queue),
        "ref_cnt": {str(block_id): count for block_id, count in enumerate(state.ref_cnts) if count},
        "cached_blocks": sorted(state.cached_from),
        "duplicate_groups": sorted(groups.values()),
        "block_ids": {key: list(requests[key].block_ids) for key in live if requests[key].block_ids},
        "num_computed_tokens": {key: requests[key].num_computed_tokens for key in live},
        "num_tokens": {key: requests[key].num_tokens for key in live},
    }


def _live_ids(state: EngineState) -> list[str]:
    """Returns the requests of both queues, by arrival."""
    ended = set(state.ended_ids)
    return [request_id for request_id in state.requests if request_id not in ended]
