"""The value of each field in a step, and what happened in it: to all, and to each request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kvscope import events as ev
from kvscope.analysis.conditions.look import RequestLook, StepLook

Value = float | str | bool


@dataclass(slots=True)
class Happened:
    """What happened in a step, by name of the field: how often at all, and to each request."""

    total: Counter[str] = field(default_factory=Counter)
    of_request: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused_by: dict[str, str] = field(default_factory=dict)
    finish_reason: dict[str, str] = field(default_factory=dict)
    scheduled: dict[str, int] = field(default_factory=dict)
    num_draft_tokens: dict[str, int] = field(default_factory=dict)
    rolled_back: dict[str, int] = field(default_factory=dict)
    token_budget: int = 0
    admission_stop: str = ""
    has_failed: bool = False
    finished: ev.StepFinished | None = None

    def add(self, name: str, request_id: str, number: int = 1) -> None:
        if number:
            self.total[name] += number
            self.of_request[name, request_id] += number


_ONCE: dict[type[ev.Event], str] = {
    ev.RequestArrived: "arrived",
    ev.RequestAdmitted: "admitted",
    ev.RequestResumed: "resumed",
    ev.RequestPreempted: "preempted",
    ev.RequestRejected: "rejected",
    ev.PrefixCacheHit: "hit",
}
_BLOCKS: dict[type[ev.Event], str] = {
    ev.BlockAllocated: "allocated",
    ev.BlockCached: "published",
    ev.BlockEvicted: "evicted",
}


def happened(events: Sequence[ev.Event]) -> Happened:
    """Returns what the events of a step say, counted."""
    found = Happened()
    for event in events:
        if (name := _ONCE.get(type(event))) is not None:
            found.add(name, getattr(event, "request_id", ""))
        elif (name := _BLOCKS.get(type(event))) is not None:
            found.add(name, getattr(event, "request_id", ""), len(getattr(event, "block_ids", ())))
        else:
            _hear(found, event)
    return found


def _hear(found: Happened, event: ev.Event) -> None:
    match event:
        case ev.StepStarted():
            found.token_budget = event.token_budget
        case ev.TokensScheduled():
            found.scheduled.update(zip(event.request_ids, event.num_tokens, strict=True))
            found.num_draft_tokens.update({name: len(drafts) for name, drafts in event.draft_token_ids.items()})
            for request_id, number in found.scheduled.items():
                found.add("scheduled_tokens", request_id, number)
        case ev.TokensSampled():
            counts = event.num_tokens if event.num_tokens is not None else (1,) * len(event.request_ids)
            for request_id, number in zip(event.request_ids, counts, strict=True):
                found.add("sampled_tokens", request_id, number)
        case ev.DraftsVerified():
            found.rolled_back[event.request_id] = event.num_rolled_back
        case ev.BlockReleased():
            num_blocks = len(event.freed_to_head) + len(event.freed_to_tail) + len(event.still_held)
            found.add("released", event.request_id, num_blocks)
        case ev.RequestFinished():
            found.add("finished", event.request_id)
            found.finish_reason[event.request_id] = event.reason
        case ev.RequestAborted():
            found.add("aborted", event.request_id)
            found.finish_reason[event.request_id] = "abort"
        case ev.RequestBlocked():
            found.refused_by[event.request_id] = event.reason
        case ev.AdmissionEnded():
            found.admission_stop = event.reason
        case ev.StepFinished():
            found.finished = event
        case ev.StepFailed():
            found.has_failed = True
        case _:
            pass


class StepValues:
    """Answers what a field is worth; reads the events once, and only where a field needs them."""

    def __init__(self, look: StepLook) -> None:
        self.look = look

    @cached_property
    def happened(self) -> Happened:
        return happened(self.look.events)

    @cached_property
    def tokens(self) -> dict[str, int]:
        """The budget split, as `EngineState.step_tokens` has it."""
        found = self.happened
        split = {"prefill_tokens": 0, "decode_tokens": 0, "draft_tokens": sum(found.num_draft_tokens.values())}
        for request_id, number in found.scheduled.items():
            request = self.look.request(request_id)
            if request is None:
                continue
            num_drafts = found.num_draft_tokens.get(request_id, 0)
            after = request.num_computed_tokens + found.rolled_back.get(request_id, 0)
            is_prefill = after - number < request.num_prefill_tokens
            split["prefill_tokens" if is_prefill else "decode_tokens"] += number - num_drafts
        return split

    def of_step(self, name: str) -> Value:
        """Returns the value of a field of the step, or the count of what happened in it."""
        reader = _STEP_READERS.get(name)
        return self.happened.total[name] if reader is None else reader(self)

    def of_request(self, name: str, request: RequestLook) -> Value:
        """Returns the value of a field where a request is meant."""
        reader = _REQUEST_READERS.get(name)
        if reader is not None:
            return reader(self, request)
        if name in _STEP_READERS:
            return self.of_step(name)
        return self.happened.of_request[name, request.request_id]

    def _milliseconds(self, *parts: str) -> float:
        finished = self.happened.finished
        return 0.0 if finished is None else sum(getattr(finished, f"{part}_ns") for part in parts) / 1e6


_STEP_READERS: dict[str, Callable[[StepValues], Value]] = {
    "step": lambda values: values.look.step,
    "free_blocks": lambda values: values.look.num_free_blocks,
    "live_blocks": lambda values: values.look.num_live_blocks,
    "cached_blocks": lambda values: values.look.num_cached_free_blocks,
    "shared_blocks": lambda values: values.look.num_shared_blocks,
    "running": lambda values: values.look.num_running,
    "waiting": lambda values: values.look.num_waiting,
    "token_budget": lambda values: values.happened.token_budget,
    "unused_tokens": lambda values: values.happened.token_budget - values.happened.total["scheduled_tokens"],
    "prefill_tokens": lambda values: values.tokens["prefill_tokens"],
    "decode_tokens": lambda values: values.tokens["decode_tokens"],
    "draft_tokens": lambda values: values.tokens["draft_tokens"],
    "step_ms": lambda values: values._milliseconds("schedule", "forward", "sample", "update"),
    "schedule_ms": lambda values: values._milliseconds("schedule"),
    "forward_ms": lambda values: values._milliseconds("forward"),
    "stalled": lambda values: values.look.num_waiting > 0 and not values.happened.total["scheduled_tokens"],
    "failed": lambda values: values.happened.has_failed,
    "admission_stop": lambda values: values.happened.admission_stop,
}


def _waiting_steps(values: StepValues, request: RequestLook) -> int:
    is_waiting = request.status_name in ("WAITING", "PREEMPTED")
    return values.look.step - request.waiting_since_step if is_waiting else 0


def _is_prefilling(values: StepValues, request: RequestLook) -> bool:
    return request.status_name == "RUNNING" and request.num_computed_tokens < request.num_prefill_tokens


_REQUEST_READERS: dict[str, Callable[[StepValues, RequestLook], Value]] = {
    "request": lambda values, request: request.request_id,
    "status": lambda values, request: request.status_name,
    "prompt_tokens": lambda values, request: request.num_prompt_tokens,
    "output_tokens": lambda values, request: request.num_output_tokens,
    "computed_tokens": lambda values, request: request.num_computed_tokens,
    "max_tokens": lambda values, request: request.max_tokens,
    "hit_tokens": lambda values, request: request.num_hit_tokens,
    "blocks": lambda values, request: request.num_blocks,
    "priority": lambda values, request: request.priority,
    "preemptions": lambda values, request: request.num_preemptions,
    "waiting_steps": _waiting_steps,
    "age_steps": lambda values, request: values.look.step - request.arrival_step,
    "prefilling": _is_prefilling,
    "refused_by": lambda values, request: values.happened.refused_by.get(request.request_id, ""),
    "finish_reason": lambda values, request: values.happened.finish_reason.get(request.request_id, ""),
}
