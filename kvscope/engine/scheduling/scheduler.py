"""The scheduler: decides in each step which request computes how many tokens, and who gives up its blocks for it.

Rules of vLLM 0.32.0's synchronous V1 scheduler (no KV connector). It has no phases: a request is a number of tokens and
a number of computed tokens, and each step lets the latter catch up. Running requests come first, in the order of their
admission; then the waiting ones, of whom only the head is ever looked at.

One difference, on purpose: what a victim published in the very step in which it is preempted is taken back.

Knows nothing of models, of time and of storage. Every decision is also an event, appended after it took effect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from kvscope import events as ev
from kvscope.engine.scheduling import rules
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.kv_cache_manager import KVCacheManager
from kvscope.engine.scheduling.output import ModelRunnerOutput, SchedulerOutput, StepResult
from kvscope.engine.scheduling.request import Request, RequestStatus, SamplingParams
from kvscope.engine.scheduling.rules import Shortage, Verdict
from kvscope.engine.scheduling.step_events import StepEvents
from kvscope.engine.scheduling.waiting_queue import waiting_queue
from kvscope.errors import EngineError

PLACEHOLDER_DRAFT = -1
"""A draft token that no model ever emits."""

_FINISH_REASONS: Mapping[RequestStatus, ev.FinishReason] = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH: "length",
    RequestStatus.FINISHED_ERROR: "error",
}


@dataclass(slots=True)
class Plan:
    """What the step under way has decided so far."""

    token_budget: int
    threshold: int
    scheduled: dict[Request, int] = field(default_factory=dict)
    """Tokens of each request, in scheduling order."""
    drafts: dict[str, list[int]] = field(default_factory=dict)
    preempted: list[Request] = field(default_factory=list)
    held_back: set[Request] = field(default_factory=set)
    """Running requests that a batching variant leaves out of this step; never any with unified batching."""
    has_scheduled_running: bool = False
    has_scheduled_prefill: bool = False
    """A running request in the middle of its prompt was scheduled."""

    def add(self, request: Request, num_new_tokens: int) -> None:
        self.scheduled[request] = num_new_tokens
        self.token_budget -= num_new_tokens

    def take_back(self, request: Request) -> int:
        """Forgets a request that was scheduled, and returns the tokens that its budget gets back."""
        num_tokens = self.scheduled.pop(request, 0)
        self.drafts.pop(request.request_id, None)
        self.token_budget += num_tokens
        return num_tokens


class Scheduler:
    """Queues and decisions of one engine.

    A step is `add_request`/`abort` for what came in, `schedule`, the model, `abort` with `during_execution`,
    `update_from_output`, `update_draft_token_ids`, and `take_events` for whoever records; `fail_step` where it raised.
    """

    def __init__(
        self, config: SchedulerConfig, *, is_recording: bool = False, clock_ns: Callable[[], int] | None = None
    ):
        self.config = config
        self.step = -1
        """The last step that was begun; -1 before the first."""
        self.requests: dict[str, Request] = {}
        """All that live, by id."""
        self.running: list[Request] = []
        """In admission order, also under the priority policy."""
        self.waiting = waiting_queue(config.policy)
        self.step_events = StepEvents(is_recording=is_recording)
        self.kv_cache_manager = KVCacheManager(config, self.step_events)
        self.head_verdict: Verdict | None = None
        """Why the head of the waiting queue was not admitted in the last step; None where nobody waits."""
        self.has_failed = False
        self._clock_ns = clock_ns or (lambda: 0)
        self._is_speculating = config.num_spec_tokens > 0
        self._finished_ids: list[str] = []

    # --- requests come and go -----------------------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Enqueues a request. Its id must not be that of a live one."""
        assert request.request_id not in self.requests, f"{request.request_id} is already there"
        self.requests[request.request_id] = request
        request.max_total_tokens = min(request.max_total_tokens, self.config.max_model_len)
        position = self.waiting.add(request)
        if self.step_events.is_recording:
            self.step_events.append(_arrived(request, position))

    def abort(self, request_id: str, *, during_execution: bool = False) -> bool:
        """Takes a request out and frees its blocks, which stay hittable. False where there is no such request."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        status = request.status
        if status is RequestStatus.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        request.status = RequestStatus.FINISHED_ABORTED
        if self.step_events.is_recording:
            event_status: Any = status.name
            self.step_events.append(
                ev.RequestAborted(request_id=request_id, status=event_status, during_execution=during_execution)
            )
        self._forget(request)
        return True

    def finish_request(self, request_id: str, *, stop: str, reason: Literal["stop", "error"] = "stop") -> None:
        """Ends a running request between `update_from_output` and the next step, for what the scheduler cannot see.

        `stop` is the stop string (or, for "error", what went wrong).
        """
        request = self.requests[request_id]
        self.running.remove(request)
        request.stop_reason = stop
        request.status = RequestStatus.FINISHED_STOPPED if reason == "stop" else RequestStatus.FINISHED_ERROR
        self._finish(request)

    def has_unfinished_requests(self) -> bool:
        return bool(self.requests)

    # --- schedule -----------------------------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Decides the step's work. Each scheduled request's `num_computed_tokens` is advanced when it returns.

        Raises:
            EngineError: an earlier step has failed.
        """
        if self.has_failed:
            raise EngineError("the engine stopped because a step failed; start it again")
        self.step += 1
        self.kv_cache_manager.begin_step()
        num_requests = len(self.running) + len(self.waiting)
        plan = Plan(
            token_budget=self.config.token_budget,
            threshold=rules.effective_threshold(self.config.long_prefill_token_threshold, num_requests),
        )
        if self.step_events.is_recording:
            self.step_events.append(
                ev.StepStarted(step=self.step, token_budget=plan.token_budget, time_ns=self._clock_ns())
            )
        self._fill(plan)
        return self._complete(plan)

    def _fill(self, plan: Plan) -> None:
        """Divides the step's budget: running requests first, then the waiting ones."""
        self._schedule_running(plan)
        plan.has_scheduled_running = bool(plan.scheduled)
        self._end_admission(plan, self._schedule_waiting(plan))

    def _schedule_running(self, plan: Plan) -> None:
        """Each running request gets its gap, or what the budget leaves of it; who lacks a block takes another's."""
        index = 0
        while index < len(self.running) and plan.token_budget > 0:
            request = self.running[index]
            if plan.held_back and request in plan.held_back:
                index += 1
                continue
            num_new_tokens = rules.running_tokens(
                len(request.all_token_ids) + len(request.spec_token_ids),
                request.num_computed_tokens,
                plan.threshold,
                plan.token_budget,
                self.config.max_model_len,
            )
            if num_new_tokens == 0:
                index += 1
                continue
            while (shortage := self.kv_cache_manager.allocate_slots(request, num_new_tokens)) is not None:
                self._log_failed_allocation(request, "running", shortage, num_new_tokens)
                victim = self._choose_victim()
                if self.running.index(victim) < index:
                    index -= 1
                self._preempt(plan, victim, beneficiary=request)
                if victim is request:
                    return  # and so better requests behind it get nothing in this step
            plan.add(request, num_new_tokens)
            if self._is_speculating:
                self._schedule_drafts(plan, request, num_new_tokens)
            index += 1

    def _schedule_waiting(self, plan: Plan) -> Verdict | None:
        """Admits the head of the queue until one fails a test, which is returned; nobody behind it is tried.

        A step that preempted admits nobody, whatever fits.
        """
        verdict = Verdict("preempted", 0, len(plan.preempted)) if plan.preempted else None
        while verdict is None and len(self.waiting):
            verdict = self._admit(plan, self.waiting.head())
        return verdict

    def _end_admission(self, plan: Plan, verdict: Verdict | None) -> None:
        self.head_verdict = verdict if len(self.waiting) else None
        if self.step_events.is_recording:
            self._log_end_of_admission(plan, verdict)

    def _admit(self, plan: Plan, request: Request) -> Verdict | None:
        """Admits the head of the queue, or returns the test that it fails."""
        verdict = rules.queue_verdict(
            token_budget=plan.token_budget, num_running=len(self.running), max_num_seqs=self.config.max_num_seqs
        )
        if verdict is not None:
            return verdict
        hit_block_ids = self.kv_cache_manager.get_computed_blocks(request)
        num_hit_tokens = len(hit_block_ids) * self.config.block_size
        self._log_lookup(request, hit_block_ids)
        tokens = rules.admission_tokens(
            self.config,
            num_tokens=request.num_tokens,
            num_hit_tokens=num_hit_tokens,
            token_budget=plan.token_budget,
            threshold=plan.threshold,
            has_scheduled_running=plan.has_scheduled_running,
            has_scheduled_prefill=plan.has_scheduled_prefill,
        )
        if isinstance(tokens, Verdict):
            return tokens
        num_own_hits = self._count_own_hits(request, hit_block_ids)
        shortage = self.kv_cache_manager.allocate_slots(
            request, tokens.num_new_tokens, hit_block_ids, is_admission=True, num_running=len(self.running)
        )
        if shortage is not None:
            self._log_failed_allocation(request, "waiting", shortage, tokens.num_new_tokens)
            return rules.blocked_by(shortage)
        self.running.append(self.waiting.pop_head())
        was_preempted = request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_hit_tokens
        request.num_hit_tokens += num_hit_tokens
        plan.add(request, tokens.num_new_tokens)
        if tokens.num_placeholder_drafts:
            plan.drafts[request.request_id] = [PLACEHOLDER_DRAFT] * tokens.num_placeholder_drafts
        if self.step_events.is_recording:
            self._log_admission(request, tokens.num_new_tokens, hit_block_ids, num_own_hits, was_preempted)
        return None

    def _choose_victim(self) -> Request:
        """The last admitted request; under the priority policy the least urgent one, of equals the first admitted."""
        if self.config.policy == "priority":
            return max(self.running, key=lambda request: (request.priority, request.arrival_time))
        return self.running[-1]

    def _preempt(self, plan: Plan, victim: Request, *, beneficiary: Request) -> None:
        """Puts a running request back into the queue: it loses its blocks and progress, and keeps its output."""
        num_returned_tokens = plan.take_back(victim)
        num_lost_tokens = victim.num_computed_tokens
        self.running.remove(victim)
        unpublished = self.kv_cache_manager.unpublish(victim)
        released = self.kv_cache_manager.free(victim)
        victim.status = RequestStatus.PREEMPTED
        victim.num_computed_tokens = 0
        victim.spec_token_ids = []
        victim.num_preemptions += 1
        position = self.waiting.put_back(victim)
        plan.preempted.append(victim)
        if self.step_events.is_recording:
            num_freed_blocks = len(released.freed_to_head) + len(released.freed_to_tail)
            self.step_events.append(
                ev.RequestPreempted(
                    request_id=victim.request_id,
                    beneficiary_id=beneficiary.request_id,
                    num_freed_blocks=num_freed_blocks,
                    num_table_blocks=num_freed_blocks + len(released.still_held),
                    num_lost_tokens=num_lost_tokens,
                    num_returned_tokens=num_returned_tokens,
                    queue_position=position,
                )
            )
            self._log_unpublished(victim, unpublished, "preempted")
            self.kv_cache_manager.log_release(victim, released)

    def _schedule_drafts(self, plan: Plan, request: Request, num_new_tokens: int) -> None:
        """Schedules as many drafts as the request's tokens reach to; the rest is dropped from the end."""
        plan.has_scheduled_prefill |= request.is_prefill_chunk
        if request.spec_token_ids:
            num_drafts = num_new_tokens + request.num_computed_tokens - request.num_tokens
            if num_drafts > 0:
                plan.drafts[request.request_id] = request.spec_token_ids[:num_drafts]
            request.spec_token_ids = []

    def _complete(self, plan: Plan) -> SchedulerOutput:
        """Advances the scheduled requests and hands the work over."""
        for request, num_new_tokens in plan.scheduled.items():
            request.num_computed_tokens += num_new_tokens
            request.is_prefill_chunk = request.num_computed_tokens < len(request.all_token_ids)
        output = SchedulerOutput(
            step=self.step,
            requests=list(plan.scheduled),
            num_scheduled_tokens=list(plan.scheduled.values()),
            scheduled_spec_tokens=plan.drafts,
            finished_request_ids=self._finished_ids,
            preempted_request_ids=[request.request_id for request in plan.preempted],
        )
        self._finished_ids = []
        if self.step_events.is_recording:
            self.step_events.append(
                ev.TokensScheduled(
                    request_ids=tuple([request.request_id for request in output.requests]),
                    num_tokens=tuple(output.num_scheduled_tokens),
                    draft_token_ids={request_id: tuple(drafts) for request_id, drafts in plan.drafts.items()},
                )
            )
        return output

    # --- what the model made of it ------------------------------------------------------------------------------------

    def update_from_output(self, output: SchedulerOutput, model_output: ModelRunnerOutput) -> StepResult:
        """Appends the sampled tokens, takes rejected drafts back, and ends requests that are done.

        Output of requests that ended during execution is ignored.
        """
        result = StepResult()
        verified: list[ev.DraftsVerified] = []
        for request, sampled in zip(output.requests, model_output.sampled_token_ids, strict=True):
            if not sampled or request.status is not RequestStatus.RUNNING:
                continue
            kept = self._append_tokens(request, sampled)
            result.requests.append(request)
            result.new_token_ids.append(kept)
            if request.status is not RequestStatus.RUNNING:
                result.finished.append(request)
            if output.scheduled_spec_tokens:
                drafts = output.scheduled_spec_tokens.get(request.request_id)
                if drafts:
                    self._verify_drafts(request, len(drafts), sampled, kept, verified)
        if self.step_events.is_recording:
            self._log_sampled(result, verified)
        if result.finished:
            for request in result.finished:
                self._finish(request)
            self.running = [request for request in self.running if request.status is RequestStatus.RUNNING]
        return result

    def update_draft_token_ids(self, draft_token_ids: Mapping[str, list[int]]) -> None:
        """Stores the drafter's tokens, to be verified in the requests' next step; not in the middle of a prompt."""
        for request_id, drafts in draft_token_ids.items():
            request = self.requests.get(request_id)
            if request is None:
                continue
            new_drafts = [] if request.is_prefill_chunk else list(drafts)
            if new_drafts != request.spec_token_ids:
                request.spec_token_ids = new_drafts
                if self.step_events.is_recording:
                    self.step_events.append(ev.DraftsProposed(request_id=request_id, draft_token_ids=tuple(new_drafts)))

    def fail_step(self) -> None:
        """Leaves a stated condition after a step that raised: nothing is published that was not computed.

        Queues and block tables stay as they were decided, `num_computed_tokens` counts tokens that may not have been
        computed, and no further step is scheduled.
        """
        self.has_failed = True
        for request in self.kv_cache_manager.publishers():
            self._log_unpublished(request, self.kv_cache_manager.unpublish(request), "step_failed")

    def take_events(self) -> list[ev.Event]:
        """Returns what happened since the last call, in order; to be called once a step, after its last update."""
        return self.step_events.take()

    def _append_tokens(self, request: Request, sampled: list[int]) -> list[int]:
        """Appends tokens until one ends the request, and returns those that were kept."""
        all_token_ids = request.all_token_ids
        for index, token_id in enumerate(sampled):
            all_token_ids.append(token_id)
            if token_id in request.ending_token_ids or len(all_token_ids) >= request.max_total_tokens:
                status = _end_status(request, token_id, self.config.max_model_len)
                if status is not None:
                    request.status = status
                    return sampled[: index + 1]
        return sampled

    def _verify_drafts(
        self, request: Request, num_drafts: int, sampled: list[int], kept: list[int], verified: list[ev.DraftsVerified]
    ) -> None:
        """Takes rejected drafts back from the computed tokens; their blocks stay in the table."""
        num_accepted = len(sampled) - 1
        request.num_computed_tokens -= num_drafts - num_accepted
        if self.step_events.is_recording:
            verified.append(
                ev.DraftsVerified(
                    request_id=request.request_id,
                    num_drafts=num_drafts,
                    num_accepted=num_accepted,
                    num_rolled_back=num_drafts - num_accepted,
                    num_discarded=len(sampled) - len(kept),
                    discarded_token_ids=tuple(sampled[len(kept) :]),
                )
            )

    def _finish(self, request: Request) -> None:
        if self.step_events.is_recording:
            self.step_events.append(
                ev.RequestFinished(
                    request_id=request.request_id,
                    reason=_FINISH_REASONS[request.status],
                    num_output_tokens=request.num_output_tokens,
                    stop=request.stop_reason,
                )
            )
        self._forget(request)

    def _forget(self, request: Request) -> None:
        """Frees what an ended request held."""
        del self.requests[request.request_id]
        request.spec_token_ids = []
        released = self.kv_cache_manager.free(request)
        self.kv_cache_manager.log_release(request, released)
        self._finished_ids.append(request.request_id)

    # --- events -------------------------------------------------------------------------------------------------------

    def _log_failed_allocation(
        self, request: Request, phase: Literal["running", "waiting"], shortage: Shortage, num_new_tokens: int
    ) -> None:
        if self.step_events.is_recording:
            self.step_events.append(
                ev.AllocationFailed(
                    request_id=request.request_id,
                    phase=phase,
                    reason=shortage.reason,
                    need_step=shortage.need_step,
                    need_full=shortage.need_full,
                    num_free_blocks=shortage.num_free_blocks,
                    watermark_blocks=shortage.watermark_blocks,
                    num_tokens=num_new_tokens,
                )
            )

    def _log_lookup(self, request: Request, hit_block_ids: list[int]) -> None:
        if self.step_events.is_recording:
            self.step_events.append(
                ev.PrefixLookedUp(
                    request_id=request.request_id,
                    num_hit_tokens=len(hit_block_ids) * self.config.block_size,
                    block_ids=tuple(hit_block_ids),
                    num_free_hit_blocks=self.kv_cache_manager.pool.count_free(hit_block_ids),
                )
            )

    def _count_own_hits(self, request: Request, hit_block_ids: list[int]) -> int:
        computed_by = self.kv_cache_manager.pool.computed_by
        return sum(computed_by[block_id] == request.request_id for block_id in hit_block_ids)

    def _log_admission(
        self, request: Request, num_new_tokens: int, hit_block_ids: list[int], num_own_hits: int, was_preempted: bool
    ) -> None:
        block_size = self.config.block_size
        if hit_block_ids:
            self.step_events.append(
                ev.PrefixCacheHit(
                    request_id=request.request_id,
                    num_hit_tokens=len(hit_block_ids) * block_size,
                    num_own_hit_tokens=num_own_hits * block_size,
                    block_ids=tuple(hit_block_ids),
                )
            )
        self.step_events.append(
            (ev.RequestResumed if was_preempted else ev.RequestAdmitted)(
                request_id=request.request_id,
                num_tokens=request.num_tokens,
                num_hit_tokens=len(hit_block_ids) * block_size,
                num_scheduled_tokens=num_new_tokens,
            )
        )

    def _log_end_of_admission(self, plan: Plan, verdict: Verdict | None) -> None:
        reason: ev.QueueTest = "empty"
        if verdict is not None:
            reason = verdict.reason
            if len(self.waiting):
                self.step_events.append(
                    ev.RequestBlocked(
                        request_id=self.waiting.head().request_id,
                        reason=verdict.reason,
                        need=verdict.need,
                        have=verdict.have,
                        watermark_blocks=verdict.watermark_blocks,
                    )
                )
        self.step_events.append(
            ev.AdmissionEnded(reason=reason, num_waiting=len(self.waiting), token_budget_left=plan.token_budget)
        )

    def _log_unpublished(
        self, request: Request, block_ids: tuple[int, ...], reason: Literal["preempted", "step_failed"]
    ) -> None:
        if self.step_events.is_recording and block_ids:
            self.step_events.append(ev.BlockUncached(request_id=request.request_id, block_ids=block_ids, reason=reason))

    def _log_sampled(self, result: StepResult, verified: list[ev.DraftsVerified]) -> None:
        if result.requests:
            counts = [len(token_ids) for token_ids in result.new_token_ids]
            self.step_events.append(
                ev.TokensSampled(
                    request_ids=tuple([request.request_id for request in result.requests]),
                    token_ids=tuple(chain.from_iterable(result.new_token_ids)),
                    num_tokens=None if counts.count(1) == len(counts) else tuple(counts),
                )
            )
        for event in verified:
            self.step_events.append(event)


def _end_status(request: Request, token_id: int, max_model_len: int) -> RequestStatus | None:
    """Returns how the request ends with its newest token, None if it goes on. Stop tokens are tested before lengths."""
    sampling = request.sampling
    if request.num_output_tokens < sampling.min_tokens:
        return None
    if token_id in request.ending_token_ids:
        if token_id in sampling.stop_token_ids:
            request.stop_reason = str(token_id)
        return RequestStatus.FINISHED_STOPPED
    if request.num_tokens >= max_model_len or request.num_output_tokens >= sampling.max_tokens:
        return RequestStatus.FINISHED_LENGTH
    return None


def _arrived(request: Request, position: int) -> ev.RequestArrived:
    defaults = SamplingParams()
    sampling = {
        name.name: value
        for name in dataclasses.fields(defaults)
        if (value := getattr(request.sampling, name.name)) != getattr(defaults, name.name)
    }
    return ev.RequestArrived(
        request_id=request.request_id,
        prompt_token_ids=tuple(request.prompt_token_ids),
        max_tokens=request.sampling.max_tokens,
        arrival_time=request.arrival_time,
        queue_position=position,
        priority=request.priority,
        cache_salt=request.cache_salt,
        prompt=request.prompt,
        sampling=sampling,
        stop_token_ids=request.sampling.stop_token_ids,
        arrival_ns=request.arrival_ns,
        template_ns=request.template_ns,
        tokenize_ns=request.tokenize_ns,
    )
