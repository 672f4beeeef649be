"""How a step's batch is made up: vLLM V1's unified way, and two older ones to compare it with.

- `unified`: every step mixes prefill chunks and decodes, and admits whenever there is room (`Scheduler` itself).
- `static`: a batch is formed of what waits while nothing runs, and runs until all its members are done.
- `exclusive`: a step is all prefill or all decode, prefill first, as vLLM V0 did without chunked prefill.

The variants change only who is looked at in a step. Blocks, prefix cache, preemption and the tests of an admission are
those of the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.plan import Plan
from kvscope.engine.scheduling.rules import Verdict
from kvscope.engine.scheduling.scheduler import Scheduler


class StaticScheduler(Scheduler):
    """Requests join only a batch that is being formed.

    A batch is opened when nothing runs, by those that wait at that moment. They are admitted over as many steps as the
    token budget asks for; the first other test that the head fails closes the batch. A preempted member comes back,
    everybody else waits until nothing runs any more.
    """

    def __init__(
        self, config: SchedulerConfig, *, is_recording: bool = False, clock_ns: Callable[[], int] | None = None
    ) -> None:
        super().__init__(config, is_recording=is_recording, clock_ns=clock_ns)
        self._candidates: set[str] = set()
        """Who waited when the batch was opened; empty once it is closed."""

    def _schedule_waiting(self, plan: Plan) -> Verdict | None:
        if plan.preempted:
            return super()._schedule_waiting(plan)
        if not self.running:
            self._candidates = {request.request_id for request in self.waiting}
        verdict: Verdict | None = None
        while verdict is None and len(self.waiting):
            head = self.waiting.head()
            if head.request_id in self._candidates or head.num_preemptions:
                verdict = self._admit(plan, head)
            else:
                verdict = Verdict("policy", 0, len(self.running))
        if verdict is not None and verdict.reason != "budget":
            self._candidates.clear()
        return verdict


class ExclusiveScheduler(Scheduler):
    """Decodes wait while any prompt can be computed; only a step without prefill decodes."""

    def _fill(self, plan: Plan) -> None:
        plan.held_back = {request for request in self.running if not request.is_prefill_chunk}
        self._schedule_running(plan)
        plan.has_scheduled_running = bool(plan.scheduled)
        verdict = self._schedule_waiting(plan)
        if not plan.scheduled:
            plan.held_back = set()
            num_preempted = len(plan.preempted)
            self._schedule_running(plan)
            if len(plan.preempted) > num_preempted:
                verdict = Verdict("preempted", 0, len(plan.preempted))
        self._end_admission(plan, verdict)


_SCHEDULERS: dict[str, type[Scheduler]] = {
    "unified": Scheduler,
    "static": StaticScheduler,
    "exclusive": ExclusiveScheduler,
}


def new_scheduler(
    config: SchedulerConfig, *, is_recording: bool = False, clock_ns: Callable[[], int] | None = None
) -> Scheduler:
    """Returns a scheduler that batches as `config.batching` says."""
    return _SCHEDULERS[config.batching](config, is_recording=is_recording, clock_ns=clock_ns)
