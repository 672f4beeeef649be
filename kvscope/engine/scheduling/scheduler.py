"""The scheduler: decides in each step which request computes how many tokens, and who gives up its blocks for it.

Rules of vLLM 0.32.0's synchronous V1 scheduler (no KV connector). It has no phases: a request is a number of tokens and
a number of computed tokens, and each step lets the latter catch up. Running requests come first, in the order of their
admission; then the waiting ones, of whom only the head is ever looked at.

One difference, on purpose: what a victim published in the very step in which it is preempted is taken back.

Knows nothing of models, of time and of storage. Every decision is also an event, appended after it took effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from kvscope import events as ev
from kvscope.engine.scheduling import rules
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.decision_log import DecisionLog
from kvscope.engine.scheduling.kv_cache_manager import KVCacheManager
from kvscope.engine.scheduling.output import ModelRunnerOutput, SchedulerOutput, StepResult
from kvscope.engine.scheduling.plan import Plan
from kvscope.engine.scheduling.request import Request, RequestStatus
from kvscope.engine.scheduling.rules import Verdict
from kvscope.engine.scheduling.step_events import StepEvents
from kvscope.engine.scheduling.waiting_queue import waiting_queue
from kvscope.errors import EngineError

PLACEHOLDER_DRAFT = -1
"""A draft token that no model ever emits."""


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
        self._log = DecisionLog(self.step_events, config.block_size)
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
        self._log.arrived(request, self.waiting.add(request))

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
        self._log.aborted(request, status, during_execution=during_execution)
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
        """True while a request runs or waits."""
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
        for request in self.running.copy():
            if plan.token_budget <= 0:
                return
            if (plan.preempted and request.status is not RequestStatus.RUNNING) or request in plan.held_back:
                continue
            num_computed = request.num_computed_tokens
            num_tokens_with_spec = len(request.all_token_ids) + len(request.spec_token_ids)
            num_new_tokens = 1
            # Steps are mostly made of decodes for which there is nothing to decide and nothing to allocate.
            if num_tokens_with_spec - num_computed != 1 or num_computed >= request.num_settled_tokens:
                num_new_tokens = rules.running_tokens(
                    num_tokens_with_spec, num_computed, plan.threshold, plan.token_budget, self.config.max_model_len
                )
                if num_new_tokens == 0:
                    continue
                if not self._make_room(plan, request, num_new_tokens):
                    return  # and so better requests behind it get nothing in this step
            plan.add(request, num_new_tokens)
            if self._is_speculating:
                self._schedule_drafts(plan, request, num_new_tokens)

    def _make_room(self, plan: Plan, request: Request, num_new_tokens: int) -> bool:
        """Gets the request its blocks, preempting others until they suffice. False where it was itself the victim."""
        while (shortage := self.kv_cache_manager.allocate_slots(request, num_new_tokens)) is not None:
            self._log.allocation_failed(request, "running", shortage, num_new_tokens)
            victim = self._choose_victim()
            self._preempt(plan, victim, beneficiary=request)
            if victim is request:
                return False
        return True

    def _schedule_waiting(self, plan: Plan) -> Verdict | None:
        """Admits the head of the queue until one fails a test, which is returned; nobody behind it is tried.

        A step that preempted admits nobody, whatever fits.
        """
        verdict = Verdict("preempted", 0, len(plan.preempted)) if plan.preempted else None
        while verdict is None and len(self.waiting):
            verdict = self._admit(plan, self.waiting.head())
        return verdict

    def _end_admission(self, plan: Plan, verdict: Verdict | None) -> None:
        head = self.waiting.head() if len(self.waiting) else None
        self.head_verdict = verdict if head is not None else None
        self._log.admission_ended(verdict, head, len(self.waiting), plan.token_budget)

    def _admit(self, plan: Plan, request: Request) -> Verdict | None:
        """Admits the head of the queue, or returns the test that it fails."""
        verdict = rules.queue_verdict(
            token_budget=plan.token_budget, num_running=len(self.running), max_num_seqs=self.config.max_num_seqs
        )
        if verdict is not None:
            return verdict
        hit_block_ids = self.kv_cache_manager.get_computed_blocks(request)
        num_hit_tokens = len(hit_block_ids) * self.config.block_size
        pool = self.kv_cache_manager.pool
        self._log.looked_up(request, hit_block_ids, pool.count_free(hit_block_ids))
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
        shortage = self.kv_cache_manager.allocate_slots(
            request, tokens.num_new_tokens, hit_block_ids, is_admission=True, num_running=len(self.running)
        )
        if shortage is not None:
            self._log.allocation_failed(request, "waiting", shortage, tokens.num_new_tokens)
            return rules.blocked_by(shortage)
        self.running.append(self.waiting.pop_head())
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_hit_tokens
        request.num_hit_tokens += num_hit_tokens
        if not request.num_preemptions:
            request.num_prompt_hit_tokens = num_hit_tokens
        plan.add(request, tokens.num_new_tokens)
        if tokens.num_placeholder_drafts:
            plan.drafts[request.request_id] = [PLACEHOLDER_DRAFT] * tokens.num_placeholder_drafts
        self._log.admitted(request, tokens.num_new_tokens, hit_block_ids, pool.computed_by)
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
        self._log.preempted(
            victim,
            beneficiary,
            released,
            num_lost_tokens=num_lost_tokens,
            num_returned_tokens=num_returned_tokens,
            queue_position=position,
        )
        self._log.unpublished(victim, unpublished, "preempted")
        self._log.released(victim, released)

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
        self._log.scheduled(output)
        return output

    # --- what the model made of it ------------------------------------------------------------------------------------

    def update_from_output(self, output: SchedulerOutput, model_output: ModelRunnerOutput) -> StepResult:
        """Appends the sampled tokens, takes rejected drafts back, and ends requests that are done.

        Output of requests that ended during execution is ignored.
        """
        result = StepResult()
        requests, new_token_ids = result.requests, result.new_token_ids
        running = RequestStatus.RUNNING  # looking it up takes as long as all else that is done for a request
        for request, sampled in zip(output.requests, model_output.sampled_token_ids, strict=True):
            if sampled and request.status is running:
                requests.append(request)
                new_token_ids.append(request.append_output(sampled))
                if request.status is not running:
                    result.finished.append(request)
        self._log.sampled(result)
        if output.scheduled_spec_tokens:
            self._verify_drafts(output, model_output, result)
        if result.finished:
            for request in result.finished:
                self._finish(request)
            self.running = [request for request in self.running if request.status is RequestStatus.RUNNING]
        return result

    def _verify_drafts(self, output: SchedulerOutput, model_output: ModelRunnerOutput, result: StepResult) -> None:
        """Rejected drafts are no longer computed; their blocks stay in the table."""
        kept = dict(zip(result.requests, result.new_token_ids, strict=True))
        for request, sampled in zip(output.requests, model_output.sampled_token_ids, strict=True):
            drafts = output.scheduled_spec_tokens.get(request.request_id)
            if drafts and request in kept:
                request.num_computed_tokens -= len(drafts) - (len(sampled) - 1)
                self._log.verified(request, len(drafts), sampled, kept[request])

    def update_draft_token_ids(self, draft_token_ids: Mapping[str, list[int]]) -> None:
        """Stores the drafter's tokens, to be verified in the requests' next step; not in the middle of a prompt."""
        for request_id, drafts in draft_token_ids.items():
            request = self.requests.get(request_id)
            if request is None:
                continue
            new_drafts = [] if request.is_prefill_chunk else list(drafts)
            if new_drafts != request.spec_token_ids:
                request.spec_token_ids = new_drafts
                self._log.proposed(request)

    def fail_step(self) -> None:
        """Leaves a stated condition after a step that raised: nothing is published that was not computed.

        Queues and block tables stay as they were decided, `num_computed_tokens` counts tokens that may not have been
        computed, and no further step is scheduled.
        """
        self.has_failed = True
        for request in self.kv_cache_manager.publishers():
            self._log.unpublished(request, self.kv_cache_manager.unpublish(request), "step_failed")

    def take_events(self) -> list[ev.Event]:
        """Returns what happened since the last call, in order; to be called once a step, after its last update."""
        return self.step_events.take()

    def _finish(self, request: Request) -> None:
        self._log.finished(request)
        self._forget(request)

    def _forget(self, request: Request) -> None:
        """Frees what an ended request held."""
        del self.requests[request.request_id]
        request.spec_token_ids = []
        self._log.released(request, self.kv_cache_manager.free(request))
        self._finished_ids.append(request.request_id)
