"""What happened to each request and in each step of a run, as figures: one pass over events, no state is folded.

The same pass serves a recording, of which only `FIGURE_KINDS` need to be read, and a run that is only simulated; where
the block events are there too, it also counts free and evicted blocks.

A token exists when its step's model and bookkeeping are done: its time is the end of that step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvscope import events as ev
from kvscope.analysis.request_figures import Admission, RequestFigures
from kvscope.analysis.run_record import FIGURE_KINDS, FailedAllocation, RunFigures
from kvscope.analysis.step_columns import StepValues

__all__ = ["FIGURE_KINDS", "FailedAllocation", "FigureCollector", "RunFigures", "run_figures"]


def run_figures(steps: Iterable[tuple[int, Sequence[ev.Event]]]) -> RunFigures:
    """Returns the figures of a run from its first step on."""
    collector = FigureCollector()
    for step, events in steps:
        collector.note_step(step, events)
    return collector.figures


class FigureCollector:
    """Collects figures step by step. `figures` may be read between two steps.

    While the same requests decode one token each, step after step, the steps are only counted: what a step costs
    follows what changed in it, not how many requests run.
    """

    def __init__(self) -> None:
        self._figures = RunFigures()
        self._scheduled_ids: tuple[str, ...] = ()
        self._steady_ids: tuple[str, ...] = ()
        """Who got one token each in the last step, decoded it and sampled another."""
        self._steady_num_tokens: tuple[int, ...] = ()
        self._steady_pairs = 0
        """Context that was read then."""
        self._num_uncounted = 0
        """Steps of theirs that the requests have not been given yet, scheduled and sampled."""
        self._first_uncounted = 0
        self._is_scheduled_alike = self._is_all_decode = False
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

    @property
    def figures(self) -> RunFigures:
        """What the steps so far make."""
        self._catch_up()
        return self._figures

    def note_step(self, step: int, events: Sequence[ev.Event]) -> None:
        """Adds one step; steps must come in order."""
        if not len(self._figures.steps):
            self._figures.steps.first_step = step
        self._step = step
        self._values = StepValues()
        notes = self._notes
        for event in events:
            note = notes.get(type(event))
            if note is not None:
                note(event)
        if self._is_scheduled_alike:
            self._forget()
        values = self._values
        values.end_ns = values.start_ns + values.schedule_ns + values.forward_ns + values.sample_ns + values.update_ns
        if not values.num_scheduled_requests and values.num_waiting:
            self._figures.num_empty_steps += 1
        self._figures.steps.append(values)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _configured(self, event: ev.EngineConfigured) -> None:
        self._figures.config = event
        self._figures.num_free_blocks = event.num_gpu_blocks - 1

    def _arrived(self, event: ev.RequestArrived) -> None:
        self._figures.requests[event.request_id] = RequestFigures(
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
        self._figures.num_rejected += 1

    def _aborted(self, event: ev.RequestAborted) -> None:
        request = self._figures.requests[event.request_id]
        request.finished_step, request.finish_reason = self._step, "abort"

    def _hit(self, event: ev.PrefixCacheHit) -> None:
        self._own_hits[event.request_id] = event.num_own_hit_tokens

    def _admitted(self, event: ev.RequestAdmitted | ev.RequestResumed) -> None:
        self._forget()
        request = self._figures.requests[event.request_id]
        own = self._own_hits.pop(event.request_id, 0)
        request.admissions.append(Admission(self._step, event.num_tokens, event.num_hit_tokens, own))
        request.num_computed_tokens = event.num_hit_tokens

    def _preempted(self, event: ev.RequestPreempted) -> None:
        self._forget()
        request = self._figures.requests[event.request_id]
        request.preempted_steps.append(self._step)
        request.num_lost_tokens += event.num_lost_tokens
        request.high_water = max(request.high_water, request.num_computed_tokens)
        request.num_computed_tokens = 0
        self._figures.preemptions.append((self._step, event.request_id))

    def _finished(self, event: ev.RequestFinished) -> None:
        request = self._figures.requests[event.request_id]
        request.finished_step, request.finish_reason = self._step, event.reason

    # --- steps --------------------------------------------------------------------------------------------------------

    def _started(self, event: ev.StepStarted) -> None:
        self._values.token_budget = event.token_budget
        self._values.start_ns = event.time_ns

    def _allocation_failed(self, event: ev.AllocationFailed) -> None:
        self._figures.last_failed_allocation = FailedAllocation(self._step, event)

    def _admission_ended(self, event: ev.AdmissionEnded) -> None:
        self._values.num_waiting = event.num_waiting
        self._figures.stops[event.reason] += 1
        if event.num_waiting:
            self._figures.stops_with_waiting[event.reason] += 1

    def _scheduled(self, event: ev.TokensScheduled) -> None:
        values = self._values
        values.num_scheduled_requests = len(event.request_ids)
        self._is_scheduled_alike = (
            bool(self._steady_ids)
            and event.request_ids == self._steady_ids
            and event.num_tokens == self._steady_num_tokens
            and self._step == self._first_uncounted + self._num_uncounted
        )
        if self._is_scheduled_alike:
            self._steady_pairs += len(event.request_ids)
            values.num_decode_tokens, values.num_token_pairs = len(event.request_ids), self._steady_pairs
        else:
            self._forget()
            self._schedule(event, values)
        if self._has_blocks:
            fewest, free = self._figures.min_free_blocks, self._figures.num_free_blocks
            self._figures.min_free_blocks = free if fewest is None else min(fewest, free)

    def _schedule(self, event: ev.TokensScheduled, values: StepValues) -> None:
        requests = self._figures.requests
        prefill = decode = pairs = recomputed = 0
        # `num_token_pairs` and `is_decode` written out: this loop runs for every request of every step.
        for request_id, num_tokens in zip(event.request_ids, event.num_tokens, strict=True):
            request = requests[request_id]
            before = request.num_computed_tokens
            request.num_computed_tokens = before + num_tokens
            pairs += num_tokens * before + (num_tokens * (num_tokens + 1) >> 1)
            if before >= request.num_prompt_tokens + request.num_output_tokens - 1:
                decode += num_tokens
            else:
                prefill += num_tokens
            if before < request.high_water:
                recomputed += 1
                request.num_recomputed_tokens += min(before + num_tokens, request.high_water) - before
        values.num_prefill_tokens, values.num_decode_tokens, values.num_token_pairs = prefill, decode, pairs
        is_one_each = event.num_tokens.count(1) == len(event.num_tokens)
        self._is_all_decode = is_one_each and not prefill and not recomputed
        self._scheduled_ids, self._steady_num_tokens, self._steady_pairs = event.request_ids, event.num_tokens, pairs

    def _sampled(self, event: ev.TokensSampled) -> None:
        requests, step = self._figures.requests, self._step
        is_one_each = event.num_tokens is None
        if self._is_scheduled_alike and is_one_each and event.request_ids == self._steady_ids:
            self._num_uncounted += 1
            self._is_scheduled_alike = False
            return
        is_all_decode = self._is_all_decode
        self._forget()
        for request_id, count in zip(event.request_ids, event.num_tokens or (1,) * len(event.request_ids), strict=True):
            request = requests[request_id]
            request.num_output_tokens += count
            for _ in range(count):
                request.token_steps.append(step)
        if is_all_decode and is_one_each and event.request_ids == self._scheduled_ids:
            self._steady_ids = event.request_ids
            self._first_uncounted, self._num_uncounted = step + 1, 0

    def _catch_up(self) -> None:
        """Gives the requests the steps that were only counted."""
        if self._num_uncounted:
            for request_id in self._steady_ids:
                request = self._figures.requests[request_id]
                request.num_computed_tokens += self._num_uncounted
                request.num_output_tokens += self._num_uncounted
                request.token_steps.append(self._first_uncounted, self._num_uncounted)
            self._first_uncounted += self._num_uncounted
            self._num_uncounted = 0

    def _forget(self) -> None:
        """Something happens to a request that others do not have in common: steps are no longer only counted."""
        self._catch_up()
        if self._is_scheduled_alike:  # a step that is not, or not alike, sampled
            for request_id in self._steady_ids:
                self._figures.requests[request_id].num_computed_tokens += 1
        self._steady_ids = ()
        self._is_scheduled_alike = self._is_all_decode = False

    def _verified(self, event: ev.DraftsVerified) -> None:
        self._forget()
        self._figures.requests[event.request_id].num_computed_tokens -= event.num_rolled_back
        self._figures.verifications[event.num_drafts, event.num_accepted] += 1
        self._figures.num_rolled_back_tokens += event.num_rolled_back

    def _step_finished(self, event: ev.StepFinished) -> None:
        values = self._values
        values.schedule_ns, values.forward_ns, values.sample_ns = event.schedule_ns, event.forward_ns, event.sample_ns
        values.update_ns, values.record_ns = event.update_ns, event.record_ns

    def _step_failed(self, event: ev.StepFailed) -> None:
        self._figures.num_failed_steps += 1

    # --- blocks, where their events are there -------------------------------------------------------------------------

    def _allocated(self, event: ev.BlockAllocated) -> None:
        self._has_blocks = True
        self._figures.num_free_blocks -= len(event.block_ids)

    def _touched(self, event: ev.BlockTouched) -> None:
        self._figures.num_free_blocks -= event.ref_cnts.count(1)

    def _released(self, event: ev.BlockReleased) -> None:
        self._figures.num_free_blocks += len(event.freed_to_head) + len(event.freed_to_tail)

    def _evicted(self, event: ev.BlockEvicted) -> None:
        self._figures.num_evicted_blocks += len(event.block_ids)


def is_decode(num_computed_tokens: int, num_tokens: int) -> bool:
    """True where only the newest token of a request is not computed yet (drafts left out)."""
    return num_computed_tokens >= num_tokens - 1


def num_token_pairs(num_computed_before: int, num_tokens: int) -> int:
    """Returns how much context tokens read: the i-th one of them all that came before it, and itself."""
    return num_tokens * num_computed_before + num_tokens * (num_tokens + 1) // 2
