"""What came from outside in a recorded run: settings, requests with the tokens that their model said, aborts.

Read from the events alone. What the recording cannot know is left open: the output of a request after its abort, or
after the recording's last step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvscope import events as ev
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.settings import scheduler_config
from kvscope.errors import KvscopeError, RecordingError

WORKLOAD_KINDS: tuple[type[ev.Event], ...] = (
    ev.EngineConfigured,
    ev.RequestArrived,
    ev.RequestRejected,
    ev.RequestAborted,
    ev.StepStarted,
    ev.TokensSampled,
    ev.DraftsProposed,
    ev.DraftsVerified,
    ev.RequestFinished,
    ev.StepFinished,
    ev.StepFailed,
)
"""The kinds that a workload is read from."""


@dataclass(frozen=True, slots=True)
class RecordedEnd:
    """How a request ended by itself."""

    num_output_tokens: int
    reason: ev.FinishReason
    stop: str | None


@dataclass(frozen=True, slots=True)
class RecordedAbort:
    """When a request was aborted: before `step` was scheduled, or while it executed."""

    step: int
    time_ns: int
    during_execution: bool


@dataclass(slots=True)
class WorkloadRequest:
    """One request, and what became of it."""

    arrived: ev.RequestArrived
    arrival_step: int
    output_token_ids: list[int] = field(default_factory=list)
    """What it sampled; with drafts also the accepted ones that its end discarded."""
    drafts: list[tuple[int, ...]] = field(default_factory=list)
    """What the drafter proposed after its j-th sampling."""
    end: RecordedEnd | None = None
    abort: RecordedAbort | None = None

    @property
    def request_id(self) -> str:
        return self.arrived.request_id

    @property
    def ready_ns(self) -> int:
        """When it could enter the queue: its submission, and its template and tokenization."""
        return self.arrived.arrival_ns + self.arrived.template_ns + self.arrived.tokenize_ns

    def ended_by_model_len(self, max_model_len: int) -> bool:
        """True where only the model's length ended it: with a larger one it would have gone on."""
        if self.end is None or self.end.reason != "length":
            return False
        return self.end.num_output_tokens < self.arrived.max_tokens and (
            len(self.arrived.prompt_token_ids) + self.end.num_output_tokens >= max_model_len
        )

    def new_request(self, eos_token_ids: tuple[int, ...]) -> Request:
        """Returns the request as it entered the queue."""
        arrived = self.arrived
        sampling: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in arrived.sampling.items()
        }
        sampling |= {"max_tokens": arrived.max_tokens, "stop_token_ids": tuple(arrived.stop_token_ids)}
        return Request(
            request_id=arrived.request_id,
            prompt_token_ids=list(arrived.prompt_token_ids),
            sampling=SamplingParams(**sampling),
            arrival_time=arrived.arrival_time,
            priority=arrived.priority,
            cache_salt=arrived.cache_salt,
            lora_name=arrived.lora_name,
            eos_token_ids=eos_token_ids,
            prompt=arrived.prompt,
            arrival_ns=arrived.arrival_ns,
            template_ns=arrived.template_ns,
            tokenize_ns=arrived.tokenize_ns,
        )


Outside = ev.RequestArrived | ev.RequestRejected | ev.RequestAborted
"""What comes into a step from outside."""


@dataclass(slots=True)
class StepAgenda:
    """What came into one step, in order."""

    before: list[Outside] = field(default_factory=list)
    during: list[ev.RequestAborted] = field(default_factory=list)


@dataclass(slots=True)
class Workload:
    """All that a run needs to be repeated without its model."""

    configured: ev.EngineConfigured
    config: SchedulerConfig
    requests: dict[str, WorkloadRequest]
    agenda: dict[int, StepAgenda]
    """By step, only the steps into which something came."""
    num_steps: int
    start_ns: int
    """When the first step began."""
    is_timed: bool
    failed_step: int | None
    """The step that raised, the recording's last."""

    @property
    def is_scripted(self) -> bool:
        """The run had no model, and so no times."""
        return not self.is_timed


def read_workload(steps: Iterable[tuple[int, Sequence[ev.Event]]]) -> Workload:
    """Returns the workload of a run from its first step on.

    Raises:
        RecordingError: the run has no settings, or was one with a KV connector.
    """
    reader = _Reader()
    for step, events in steps:
        reader.note_step(step, events)
    return reader.workload()


class _Reader:
    def __init__(self) -> None:
        self._configured: ev.EngineConfigured | None = None
        self._requests: dict[str, WorkloadRequest] = {}
        self._agenda: defaultdict[int, StepAgenda] = defaultdict(StepAgenda)
        self._num_steps = 0
        self._start_ns: int | None = None
        self._time_ns = 0
        self._is_timed = False
        self._failed_step: int | None = None

    def note_step(self, step: int, events: Sequence[ev.Event]) -> None:
        self._num_steps = step + 1
        before: list[Outside] = []
        for event in events:
            match event:
                case ev.EngineConfigured():
                    self._configured = event
                case ev.RequestArrived():
                    self._requests[event.request_id] = WorkloadRequest(event, step)
                    before.append(event)
                case ev.RequestRejected():
                    before.append(event)
                case ev.RequestAborted() if event.during_execution:
                    self._agenda[step].during.append(event)
                    self._abort(event, step)
                case ev.RequestAborted():
                    before.append(event)
                case ev.StepStarted():
                    self._started(event)
                case ev.TokensSampled():
                    self._sampled(event)
                case ev.DraftsVerified():
                    if event.discarded_token_ids:
                        self._requests[event.request_id].output_token_ids.extend(event.discarded_token_ids)
                case ev.DraftsProposed():
                    self._requests[event.request_id].drafts[-1] = event.draft_token_ids
                case ev.RequestFinished():
                    end = RecordedEnd(event.num_output_tokens, event.reason, event.stop)
                    self._requests[event.request_id].end = end
                case ev.StepFinished():
                    self._is_timed |= bool(event.forward_ns or event.schedule_ns)
                case ev.StepFailed():
                    self._failed_step = step
                case _:
                    pass
        for event in before:
            self._agenda[step].before.append(event)
            if isinstance(event, ev.RequestAborted):
                self._abort(event, step)

    def _started(self, event: ev.StepStarted) -> None:
        self._time_ns = event.time_ns
        if self._start_ns is None:
            self._start_ns = event.time_ns

    def _abort(self, event: ev.RequestAborted, step: int) -> None:
        self._requests[event.request_id].abort = RecordedAbort(step, self._time_ns, event.during_execution)

    def _sampled(self, event: ev.TokensSampled) -> None:
        counts = event.num_tokens if event.num_tokens is not None else (1,) * len(event.request_ids)
        start = 0
        for request_id, count in zip(event.request_ids, counts, strict=True):
            request = self._requests[request_id]
            request.output_token_ids.extend(event.token_ids[start : start + count])
            request.drafts.append(())
            start += count

    def workload(self) -> Workload:
        if self._configured is None:
            raise RecordingError("the recording has no settings: it does not begin with its engine's first step")
        try:
            config = scheduler_config(self._configured.settings)
        except KvscopeError as error:
            raise RecordingError(f"the recording's settings cannot be used: {error.message}") from error
        if config.connector:
            raise RecordingError("a run with a KV connector cannot be repeated: what the connector did is not recorded")
        return Workload(
            configured=self._configured,
            config=config,
            requests=self._requests,
            agenda=dict(self._agenda),
            num_steps=self._num_steps,
            start_ns=self._start_ns or 0,
            is_timed=self._is_timed,
            failed_step=self._failed_step,
        )
