"""Ways to try out whether a request would have waited at a step under another setting.

- `StepRerun`: the step, scheduled again from exactly what stood before it, with this one setting changed and nothing
  else, admits the request (or, where it was preempted in this step, leaves it running). The step's running requests are
  scheduled under the changed setting too, so a larger budget that they would eat up does not count.
- `WholeRerun`: the run, repeated from its first step with this one setting changed, does not have the request in the
  waiting queue when the admission of the step stops. Where it comes further than the recording (which ended, or where a
  request was aborted), tokens are made up; `is_exact` says so.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

from kvscope import events as ev
from kvscope.analysis.workload import Workload
from kvscope.analysis.workload_run import WorkloadRun
from kvscope.engine.scheduling import rules
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.restored import Standing, restored_scheduler
from kvscope.events import QueueTest


@dataclass(frozen=True, slots=True, kw_only=True)
class StillBlocked:
    """What stands in the way where a setting does not help: the verdict on the head of the queue."""

    request_id: str
    reason: QueueTest
    need: int
    have: int
    watermark_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a search goes: beyond these values a setting cannot matter."""

    blocks: int
    """That hold all tokens of all requests at once."""
    requests: int
    tokens: int
    """Of all requests together, drafts included."""
    longest: int
    """Tokens of the longest request."""


class Trial(Protocol):
    """One way to try a setting out."""

    config: SchedulerConfig
    """The recorded settings."""
    blocked: StillBlocked | None
    """The verdict on the head of the queue in the last trial."""
    is_exact: bool
    """False as soon as a trial needed tokens or drafts that the recording does not know; may be set to start anew."""

    @property
    def limits(self) -> Limits: ...

    def admits(self, **settings: Any) -> bool:
        """True if the request does not wait with these settings; without any it is the recorded run."""
        ...


class StepRerun:
    """Runs one step again under other settings, or without one of the requests."""

    def __init__(self, config: SchedulerConfig, standing: Standing, request_id: str) -> None:
        self.config = config
        self.standing = standing
        self.request_id = request_id
        self.blocked: StillBlocked | None = None
        self.is_exact = True

    @property
    def limits(self) -> Limits:
        state, config = self.standing.state, self.config
        requests = [state.requests[request_id] for request_id in [*state.running, *state.waiting]]
        sizes = [request.num_tokens + config.num_spec_tokens + 1 for request in requests]
        return Limits(
            blocks=sum(rules.num_blocks_for(size, config.block_size) for size in sizes),
            requests=len(requests),
            tokens=sum(sizes) + sum(len(request.draft_token_ids) for request in requests),
            longest=max((request.num_tokens - request.num_computed_tokens for request in requests), default=1),
        )

    def admits(self, **settings: Any) -> bool:
        """Runs the step with these settings; True if the request is running when admission stops."""
        return self._run(dataclasses.replace(self.config, **settings))

    def admits_without(self, request_id: str) -> bool:
        """Runs the step as if a running request had ended just before it."""
        return self._run(self.config, ended_id=request_id)

    def _run(self, config: SchedulerConfig, ended_id: str | None = None) -> bool:
        scheduler = restored_scheduler(config, self.standing)
        if ended_id is not None:
            scheduler.abort(ended_id)
        scheduler.schedule()
        verdict = scheduler.head_verdict
        self.blocked = None
        if verdict is not None:
            self.blocked = StillBlocked(
                request_id=scheduler.waiting.head().request_id,
                reason=verdict.reason,
                need=verdict.need,
                have=verdict.have,
                watermark_blocks=verdict.watermark_blocks,
            )
        return any(request.request_id == self.request_id for request in scheduler.running)


class WholeRerun:
    """Repeats the run from its first step up to the step."""

    def __init__(self, workload: Workload, step: int, request_id: str) -> None:
        self.config = workload.config
        self.blocked: StillBlocked | None = None
        self.is_exact = True
        self._workload = workload
        self._step = step
        self._request_id = request_id

    @property
    def limits(self) -> Limits:
        arrived = [request for request in self._workload.requests.values() if request.arrival_step <= self._step]
        sizes = [len(request.arrived.prompt_token_ids) + request.arrived.max_tokens for request in arrived]
        return Limits(
            blocks=sum(rules.num_blocks_for(size, self.config.block_size) for size in sizes),
            requests=len(arrived),
            tokens=sum(sizes) + self.config.num_spec_tokens * len(arrived),
            longest=max(sizes, default=1),
        )

    def admits(self, **settings: Any) -> bool:
        """Runs up to the step; True if the request does not wait when the step's admission stops."""
        run = WorkloadRun(self._workload, dataclasses.replace(self.config, **settings))
        is_waiting = False
        self.blocked = None
        for step, events in run.steps():
            if step < self._step and (run.notes.num_made_up_tokens or run.notes.num_undrafted_samplings):
                self.is_exact = False
            for event in events:
                match event:
                    case ev.RequestArrived() | ev.RequestPreempted() if event.request_id == self._request_id:
                        is_waiting = True
                    case ev.RequestAdmitted() | ev.RequestResumed() | ev.RequestAborted():
                        if event.request_id == self._request_id:
                            is_waiting = False
                    case ev.RequestBlocked() if step == self._step:
                        self.blocked = StillBlocked(
                            request_id=event.request_id,
                            reason=event.reason,
                            need=event.need,
                            have=event.have,
                            watermark_blocks=event.watermark_blocks,
                        )
                    case ev.TokensScheduled() if step == self._step:
                        return not is_waiting
                    case _:
                        pass
        return not is_waiting
