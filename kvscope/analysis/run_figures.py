"""What happened to each request and in each step of a run, as figures: one pass over events, no state is folded.

The same pass serves a recording, of which only `FIGURE_KINDS` need to be read, and a run that is only simulated; where
the block events are there too, it also counts free and evicted blocks.

A token exists when its step's model and bookkeeping are done: its time is the end of that step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvscope import events as ev
from kvscope.analysis.request_figures import Admission, RequestFigures
from kvscope.analysis.step_columns import StepColumns, StepValues

FIGURE_KINDS: tuple[type[ev.Event], ...] = (
    ev.EngineConfigured,
    ev.RequestArrived,
    ev.RequestRejected,
    ev.RequestAborted,
    ev.StepStarted,
    ev.AllocationFailed,
    ev.AdmissionEnded,
    ev.PrefixCacheHit,
    ev.RequestAdmitted,
    ev.RequestResumed,
    ev.RequestPreempted,
    ev.TokensScheduled,
    ev.TokensSampled,
    ev.DraftsVerified,
    ev.RequestFinished,
    ev.StepFinished,
    ev.StepFailed,
)
"""The kinds that the pass needs; block events besides are counted where they are there."""


@dataclass(frozen=True, slots=True)
class FailedAllocation:
    """An allocation that was refused, with its step."""

    step: int
    event: ev.AllocationFailed


@dataclass(slots=True)
class RunFigures:
    """A run as figures."""

    config: ev.EngineConfigured | None = None
    requests: dict[str, RequestFigures] = field(default_factory=dict)
    """By arrival."""
    steps: StepColumns = field(default_factory=StepColumns)
    stops: Counter[str] = field(default_factory=Counter)
    """Why the waiting loop ended, in how many steps."""
    stops_with_waiting: Counter[str] = field(default_factory=Counter)
    """The same, of the steps after whose admissions somebody still waited."""
    preemptions: list[tuple[int, str]] = field(default_factory=list)
    """`(step, victim)` in order."""
    num_rejected: int = 0
    num_failed_steps: int = 0
    num_empty_steps: int = 0
    """Steps that scheduled nothing while something waited."""
    verifications: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often so many drafts of a request were verified in a step and so many of them accepted."""
    num_rolled_back_tokens: int = 0
    """Tokens that were computed for rejected drafts, and taken back."""
    last_failed_allocation: FailedAllocation | None = None
    num_evicted_blocks: int = 0
    """Only where the block events were there."""
    num_free_blocks: int = 0
    min_free_blocks: int | None = None
    """The fewest free blocks that the schedule of a step left; None without block events."""

    @property
    def is_timed(self) -> bool:
        """The engine had a clock. Scripted runs have none: their figures are in steps."""
        return any(self.steps.forward_ns) or any(self.steps.start_ns)

    @property
    def num_steps(self) -> int:
        return len(self.steps)

    @property
    def num_lost_tokens(self) -> int:
        """Computed tokens that preemptions threw away."""
        return sum(request.num_lost_tokens for request in self.requests.values())

    @property
    def num_recomputed_tokens(self) -> int:
        """Of these, tokens that were computed a second time."""
        return sum(request.num_recomputed_tokens for request in self.requests.values())

    @property
    def num_hit_tokens(self) -> int:
        """Of all admissions, first ones and those after preemptions."""
        return sum(request.num_hit_tokens for request in self.requests.values())


def run_figures(steps: Iterable[tuple[int, Sequence[ev.Event]]]) -> RunFigures:
    """Returns the figures of a run from its first step on."""
    collector = FigureCollector()
    for step, events in steps:
        collector.note_step(step, events)
    return collector.figures


class FigureCollector:
    """Collects figures step by step. `figures` may be read between two steps."""

    def __init__(self) -> None:
        self.figures = RunFigures()
        self._step = -1
        self._values = StepValues()
        self._own_hits: dict[str, int] = {}
        self._has_blocks = False
        self._notes: dict[type, Callable[[Any], None]] = {
            ev.EngineConfigured: self._configured,
            ev.RequestArrived: self._arrived,
            ev.RequestRejected: self._rejected,
            ev.RequestAborted: self._aborted,
            ev.StepStarted: self._started,
            ev.AllocationFailed: self._allocation_failed,
            ev.AdmissionEnded: self._admission_ended,
            ev.PrefixCacheHit: self._hit,
            ev.RequestAdmitted: self._admitted,
            ev.RequestResumed: self._admitted,
            ev.RequestPreempted: self._preempted,
            ev.TokensScheduled: self._scheduled,
            ev.TokensSampled: self._sampled,
            ev.DraftsVerified: self._verified,
            ev.RequestFinished: self._finished,
            ev.StepFinished: self._step_finished,
            ev.StepFailed: self._step_failed,
            ev.BlockAllocated: self._allocated,
            ev.BlockTouched: self._touched,
            ev.BlockReleased: self._released,
            ev.BlockEvicted: self._evicted,
        }

    def note_step(self, step: int, events: Sequence[ev.Event]) -> None:
        """Adds one step; steps must come in order."""
        if not len(self.figures.steps):
            self.figures.steps.first_step = step
        self._step = step
        self._values = StepValues()
        notes = self._notes
        for event in events:
            note = notes.get(type(event))
            if note is not None:
                note(event)
        values = self._values
        values.end_ns = values.start_ns + values.schedule_ns + values.forward_ns + values.sample_ns + values.update_ns
        if not values.num_scheduled_requests and values.num_waiting:
            self.figures.num_empty_steps += 1
        self.figures.steps.append(values)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _configured(self, event: ev.EngineConfigured) -> None:
        self.figures.config = event
        self.figures.num_free_blocks = event.num_gpu_blocks - 1

    def _arrived(self, event: ev.RequestArrived) -> None:
        self.figures.requests[event.request_id] = RequestFigures(
            request_id=event.request_id,
            arrival_step=self._step,
            num_prompt_tokens=len(event.prompt_token_ids),
            max_tokens=event.max_tokens,
            priority=event.priority,
            cache_salt=event.cache_salt,
            lora_name=event.lora_name,
            arrival_ns=event.arrival_ns,
            template_ns=event.template_ns,
            tokenize_ns=event.tokenize_ns,
        )

    def _rejected(self, event: ev.RequestRejected) -> None:
        self.figures.num_rejected += 1

    def _aborted(self, event: ev.RequestAborted) -> None:
        request = self.figures.requests[event.request_id]
        request.finished_step, request.finish_reason = self._step, "abort"

    def _hit(self, event: ev.PrefixCacheHit) -> None:
        self._own_hits[event.request_id] = event.num_own_hit_tokens

    def _admitted(self, event: ev.RequestAdmitted | ev.RequestResumed) -> None:
        request = self.figures.requests[event.request_id]
        own = self._own_hits.pop(event.request_id, 0)
        request.admissions.append(Admission(self._step, event.num_tokens, event.num_hit_tokens, own))
        request.num_computed_tokens = event.num_hit_tokens

    def _preempted(self, event: ev.RequestPreempted) -> None:
        request = self.figures.requests[event.request_id]
        request.preempted_steps.append(self._step)
        request.num_lost_tokens += event.num_lost_tokens
        request.high_water = max(request.high_water, request.num_computed_tokens)
        request.num_computed_tokens = 0
        self.figures.preemptions.append((self._step, event.request_id))

    def _finished(self, event: ev.RequestFinished) -> None:
        request = self.figures.requests[event.request_id]
        request.finished_step, request.finish_reason = self._step, event.reason

    # --- steps --------------------------------------------------------------------------------------------------------

    def _started(self, event: ev.StepStarted) -> None:
        self._values.token_budget = event.token_budget
        self._values.start_ns = event.time_ns

    def _allocation_failed(self, event: ev.AllocationFailed) -> None:
        self.figures.last_failed_allocation = FailedAllocation(self._step, event)

    def _admission_ended(self, event: ev.AdmissionEnded) -> None:
        self._values.num_waiting = event.num_waiting
        self.figures.stops[event.reason] += 1
        if event.num_waiting:
            self.figures.stops_with_waiting[event.reason] += 1

    def _scheduled(self, event: ev.TokensScheduled) -> None:
        requests, values = self.figures.requests, self._values
        prefill = decode = pairs = 0
        # `num_token_pairs` and `is_decode` written out: this loop runs for every request of every step.
        for request_id, num_tokens in zip(event.request_ids, event.num_tokens, strict=True):
            request = requests[request_id]
            before = request.num_computed_tokens
            request.num_computed_tokens = before + num_tokens
            pairs += num_tokens * before + (num_tokens * (num_tokens + 1) >> 1)
            if before >= request.num_prompt_tokens + len(request.token_steps) - 1:
                decode += num_tokens
            else:
                prefill += num_tokens
            if before < request.high_water:
                request.num_recomputed_tokens += min(before + num_tokens, request.high_water) - before
        values.num_prefill_tokens, values.num_decode_tokens, values.num_token_pairs = prefill, decode, pairs
        values.num_scheduled_requests = len(event.request_ids)
        if self._has_blocks:
            fewest, free = self.figures.min_free_blocks, self.figures.num_free_blocks
            self.figures.min_free_blocks = free if fewest is None else min(fewest, free)

    def _sampled(self, event: ev.TokensSampled) -> None:
        requests, step = self.figures.requests, self._step
        if event.num_tokens is None:
            for request_id in event.request_ids:
                requests[request_id].token_steps.append(step)
            return
        for request_id, count in zip(event.request_ids, event.num_tokens, strict=True):
            requests[request_id].token_steps.extend([step] * count)

    def _verified(self, event: ev.DraftsVerified) -> None:
        self.figures.requests[event.request_id].num_computed_tokens -= event.num_rolled_back
        self.figures.verifications[event.num_drafts, event.num_accepted] += 1
        self.figures.num_rolled_back_tokens += event.num_rolled_back

    def _step_finished(self, event: ev.StepFinished) -> None:
        values = self._values
        values.schedule_ns, values.forward_ns, values.sample_ns = event.schedule_ns, event.forward_ns, event.sample_ns
        values.update_ns, values.record_ns = event.update_ns, event.record_ns

    def _step_failed(self, event: ev.StepFailed) -> None:
        self.figures.num_failed_steps += 1

    # --- blocks, where their events are there -------------------------------------------------------------------------

    def _allocated(self, event: ev.BlockAllocated) -> None:
        self._has_blocks = True
        self.figures.num_free_blocks -= len(event.block_ids)

    def _touched(self, event: ev.BlockTouched) -> None:
        self.figures.num_free_blocks -= event.ref_cnts.count(1)

    def _released(self, event: ev.BlockReleased) -> None:
        self.figures.num_free_blocks += len(event.freed_to_head) + len(event.freed_to_tail)

    def _evicted(self, event: ev.BlockEvicted) -> None:
        self.figures.num_evicted_blocks += len(event.block_ids)


def is_decode(num_computed_tokens: int, num_tokens: int) -> bool:
    """True where only the newest token of a request is not computed yet (drafts left out)."""
    return num_computed_tokens >= num_tokens - 1


def num_token_pairs(num_computed_before: int, num_tokens: int) -> int:
    """Returns how much context tokens read: the i-th one of them all that came before it, and itself."""
    return num_tokens * num_computed_before + num_tokens * (num_tokens + 1) // 2
