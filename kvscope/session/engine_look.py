"""What conditions look at in the engine's own process: the scheduler's books after a step.

The books say nothing of steps, so the few facts that a condition needs besides (since when a request waits, what its
last admission hit) are noted from the events, step by step. Nothing is folded: a step costs a look through its events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kvscope import events as ev
from kvscope.analysis.conditions.look import RequestLook
from kvscope.engine.llm_engine import StepReport
from kvscope.engine.scheduling.request import Request, RequestStatus
from kvscope.engine.scheduling.scheduler import Scheduler


@dataclass(slots=True)
class _Noted:
    """What the events said of a request."""

    arrival_step: int
    waiting_since_step: int
    num_prefill_tokens: int = 0
    num_hit_tokens: int = 0


_UNKNOWN = _Noted(0, 0)


@dataclass(frozen=True, slots=True)
class EngineRequestLook:
    """A request of the scheduler's, with what was noted of it."""

    request: Request
    noted: _Noted

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def arrival_step(self) -> int:
        return self.noted.arrival_step

    @property
    def waiting_since_step(self) -> int:
        return self.noted.waiting_since_step

    @property
    def num_prompt_tokens(self) -> int:
        return self.request.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        return self.request.num_output_tokens

    @property
    def num_computed_tokens(self) -> int:
        return self.request.num_computed_tokens

    @property
    def num_prefill_tokens(self) -> int:
        return self.noted.num_prefill_tokens

    @property
    def num_hit_tokens(self) -> int:
        return self.noted.num_hit_tokens

    @property
    def max_tokens(self) -> int:
        return self.request.sampling.max_tokens

    @property
    def num_preemptions(self) -> int:
        return self.request.num_preemptions

    @property
    def priority(self) -> int:
        return self.request.priority

    @property
    def num_blocks(self) -> int:
        return len(self.request.block_ids)

    @property
    def status_name(self) -> str:
        status = self.request.status
        if not status.is_finished:
            return status.name
        return "ABORTED" if status is RequestStatus.FINISHED_ABORTED else "FINISHED"


@dataclass(frozen=True, slots=True)
class EngineLook:
    """A step of the engine that has just been made."""

    scheduler: Scheduler
    step: int
    events: Sequence[ev.Event]
    ended: dict[str, Request]
    noted: dict[str, _Noted]

    @property
    def num_free_blocks(self) -> int:
        return self.scheduler.kv_cache_manager.pool.num_free_blocks

    @property
    def num_live_blocks(self) -> int:
        return len(self.scheduler.kv_cache_manager.pool.ref_cnts) - 1 - self.num_free_blocks

    @property
    def num_cached_free_blocks(self) -> int:
        pool = self.scheduler.kv_cache_manager.pool
        return len(pool.free_queue.keys() & pool.block_hashes.keys())

    @property
    def num_shared_blocks(self) -> int:
        return sum(count > 1 for count in self.scheduler.kv_cache_manager.pool.ref_cnts)

    @property
    def num_running(self) -> int:
        return len(self.scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self.scheduler.waiting)

    def requests(self) -> Iterator[RequestLook]:
        for requests in (self.scheduler.requests, self.ended):
            for request in requests.values():
                yield self._look(request)

    def request(self, request_id: str) -> RequestLook | None:
        request = self.scheduler.requests.get(request_id) or self.ended.get(request_id)
        return None if request is None else self._look(request)

    def _look(self, request: Request) -> EngineRequestLook:
        return EngineRequestLook(request, self.noted.get(request.request_id, _UNKNOWN))


@dataclass(slots=True)
class EngineLooks:
    """Makes the look of each step; must be told of every one, from the first on."""

    scheduler: Scheduler
    _noted: dict[str, _Noted] = field(default_factory=dict)
    _ended_ids: list[str] = field(default_factory=list)

    def after(self, report: StepReport) -> EngineLook:
        """Returns what the step left, valid until the next one."""
        for request_id in self._ended_ids:
            self._noted.pop(request_id, None)
        for event in report.events:
            self._note(report.step, event)
        ended = {request.request_id: request for request in report.ended_requests}
        self._ended_ids = list(ended)
        return EngineLook(self.scheduler, report.step, report.events, ended, self._noted)

    def _note(self, step: int, event: ev.Event) -> None:
        match event:
            case ev.RequestArrived():
                self._noted[event.request_id] = _Noted(step, step)
            case ev.RequestPreempted():
                self._noted[event.request_id].waiting_since_step = step
            case ev.RequestAdmitted() | ev.RequestResumed():
                noted = self._noted[event.request_id]
                noted.num_prefill_tokens, noted.num_hit_tokens = event.num_tokens, event.num_hit_tokens
            case _:
                pass
