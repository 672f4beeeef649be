"""Runs a recorded workload through the scheduler again, without the model: what-if.

Arrivals and aborts come either at the steps at which they came in the recording, or at their recorded times on a clock
that an estimate of each step's duration moves forward. Outputs are the recorded ones. Where a request runs on beyond
what the recording knows of it (it was aborted, or the recording ended, or only the model's length ended it), its
further tokens are made up: they equal no recorded token, so that they hit nothing recorded and stop nothing. Drafts are
those that followed the same sampling of the request, counted from its first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from kvscope import events as ev
from kvscope.analysis.run_figures import is_decode, num_token_pairs
from kvscope.analysis.step_time_model import StepLoad, StepTimeModel
from kvscope.analysis.workload import Outside, StepAgenda, Workload, WorkloadRequest
from kvscope.engine.scheduling.batching import new_scheduler
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.hashing import MAX_TOKEN_ID
from kvscope.engine.scheduling.output import SchedulerOutput, StepResult
from kvscope.engine.scheduling.progress import ProgressWatch, Stuck
from kvscope.engine.scheduling.request import RequestStatus
from kvscope.engine.scheduling.scripted_runner import Script, ScriptedRunner

Arrivals = Literal["steps", "time"]

DEFAULT_MAX_STEPS = 1_000_000


@dataclass(slots=True)
class RunNotes:
    """What the run could not know or do as the recording had it."""

    num_made_up_tokens: Counter[str] = field(default_factory=Counter)
    """By request: tokens beyond what the recording knows."""
    num_undrafted_samplings: Counter[str] = field(default_factory=Counter)
    """By request, with speculation: samplings beyond those of the recording; what follows them is not drafted."""
    refused: list[str] = field(default_factory=list)
    """Requests that the changed `max_model_len` has no place for; an engine refuses them."""
    cut_short: list[str] = field(default_factory=list)
    """Requests that the changed `max_model_len` ended before their recorded output was out."""
    is_cut_off: bool = False
    """The run was stopped at its step limit."""


class WorkloadRun:
    """A workload under way under some settings. `steps` runs it; then `stuck` and `notes` say how it ended."""

    def __init__(
        self,
        workload: Workload,
        config: SchedulerConfig,
        *,
        arrivals: Arrivals = "steps",
        step_time: StepTimeModel | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
    ) -> None:
        """With `arrivals` "time" there must be a `step_time`. Without one the run has no clock."""
        assert step_time is not None or arrivals == "steps", "arrivals by time need a clock"
        self.stuck: Stuck | None = None
        self.notes = RunNotes()
        self._workload = workload
        self._config = config
        self._step_time = step_time
        self._max_steps = max_steps
        self._now_ns = workload.start_ns if step_time is not None else 0
        self._scheduler = new_scheduler(config, is_recording=True, clock_ns=lambda: self._now_ns)
        self._watch = ProgressWatch(self._scheduler)
        self._runner = ScriptedRunner(config.num_spec_tokens)
        self._inbox: _Inbox = _StepInbox(workload) if arrivals == "steps" else _TimeInbox(workload)

    def steps(self) -> Iterator[tuple[int, list[ev.Event]]]:
        """Runs to the end and yields each step's events as an engine would have recorded them."""
        step = 0
        while self.stuck is None and (self._inbox.has_arrivals or self._scheduler.has_unfinished_requests()):
            if step >= self._max_steps:
                self.notes.is_cut_off = True
                return
            yield step, self._run_step(step)
            step += 1

    def _run_step(self, step: int) -> list[ev.Event]:
        scheduler = self._scheduler
        if not scheduler.has_unfinished_requests():
            self._now_ns = max(self._now_ns, self._inbox.next_ns)
        came = self._inbox.take(step, self._now_ns)
        for outside in came:
            self._take_in(outside)
        output = scheduler.schedule()
        duration_ns = self._duration_ns(output)
        model_output = self._runner.execute(output)
        aborts = self._inbox.take_aborts_during(step, self._now_ns + duration_ns, scheduler.requests)
        for request_id in aborts:
            scheduler.abort(request_id, during_execution=True)
        result = scheduler.update_from_output(output, model_output)
        self._end_as_recorded(result)
        scheduler.update_draft_token_ids(model_output.draft_token_ids)
        # A step without work takes no time: what comes next must come to it.
        self._now_ns = self._now_ns + duration_ns if output.requests else max(self._now_ns, self._inbox.next_ns)
        events = scheduler.take_events()
        if step == 0:
            events.insert(0, self._configured())
        events.append(ev.StepFinished(forward_ns=duration_ns))
        if came or aborts:
            self._watch.reset()
        if not self._inbox.may_change(scheduler.requests):
            self.stuck = self._watch.look(output, result)
        return events

    def _take_in(self, outside: Outside) -> None:
        match outside:
            case ev.RequestArrived():
                self._arrive(self._workload.requests[outside.request_id])
            case ev.RequestAborted():
                self._scheduler.abort(outside.request_id)
            case ev.RequestRejected():
                self._scheduler.step_events.append(outside)

    def _arrive(self, entry: WorkloadRequest) -> None:
        num_prompt, max_model_len = len(entry.arrived.prompt_token_ids), self._config.max_model_len
        if num_prompt >= max_model_len and max_model_len < self._workload.config.max_model_len:
            self.notes.refused.append(entry.request_id)
            self._scheduler.step_events.append(
                ev.RequestRejected(
                    request_id=entry.request_id, reason="max_model_len", have=num_prompt, limit=max_model_len - 1
                )
            )
            return
        request = entry.new_request(self._workload.configured.eos_token_ids)
        most = min(entry.arrived.max_tokens, max(max_model_len - num_prompt, 0))
        outputs: list[int] = entry.output_token_ids
        if self._is_open(entry) and most > len(outputs):
            outputs = [*outputs, *_made_up(most - len(outputs))]
        self._runner.scripts[entry.request_id] = Script(outputs, entry.drafts)
        self._scheduler.add_request(request)

    def _is_open(self, entry: WorkloadRequest) -> bool:
        """True where the recording does not know how the request would have gone on."""
        if entry.end is None:
            return True
        grows = self._config.max_model_len > self._workload.config.max_model_len
        return grows and entry.ended_by_model_len(self._workload.config.max_model_len)

    def _end_as_recorded(self, result: StepResult) -> None:
        """Ends what ended for a reason that no rule of the scheduler knows: a stop string, an error of the engine."""
        for request in result.requests:
            entry = self._workload.requests[request.request_id]
            num_output = request.num_output_tokens
            if num_output > len(entry.output_token_ids):
                self.notes.num_made_up_tokens[request.request_id] = num_output - len(entry.output_token_ids)
            if self._config.num_spec_tokens:
                num_more = self._runner.scripts[request.request_id].num_samplings - len(entry.drafts)
                if num_more > 0:
                    self.notes.num_undrafted_samplings[request.request_id] = num_more
            end = entry.end
            if end is None or self._is_open(entry):
                continue
            if request.status is RequestStatus.RUNNING and num_output >= end.num_output_tokens:
                reason: Literal["stop", "error"] = "error" if end.reason == "error" else "stop"
                self._scheduler.finish_request(request.request_id, stop=end.stop or "", reason=reason)
            elif request.status.is_finished and num_output < end.num_output_tokens:
                self.notes.cut_short.append(request.request_id)

    def _duration_ns(self, output: SchedulerOutput) -> int:
        if self._step_time is None or not output.requests:
            return 0
        prefill = decode = pairs = 0
        for request, num_tokens in zip(output.requests, output.num_scheduled_tokens, strict=True):
            before = request.num_computed_tokens - num_tokens
            pairs += num_token_pairs(before, num_tokens)
            if is_decode(before, request.num_tokens):
                decode += num_tokens
            else:
                prefill += num_tokens
        return self._step_time.predict_ns(StepLoad(prefill, decode, pairs))

    def _configured(self) -> ev.EngineConfigured:
        return msgspec.structs.replace(
            self._workload.configured,
            settings=self._config.as_settings(),
            num_gpu_blocks=self._config.num_gpu_blocks,
            block_size=self._config.block_size,
            watermark_blocks=self._config.watermark_blocks,
        )


def _made_up(count: int) -> Iterator[int]:
    """Yields token ids from the top of what can be hashed: no vocabulary reaches there."""
    return iter(range(MAX_TOKEN_ID, MAX_TOKEN_ID - count, -1))


class _Inbox:
    """What is still to come from outside."""

    @property
    def has_arrivals(self) -> bool:
        """Something other than an abort is still to come."""
        raise NotImplementedError

    @property
    def next_ns(self) -> int:
        """When the next thing comes, as far as a clock decides; 0 otherwise."""
        raise NotImplementedError

    def take(self, step: int, now_ns: int) -> Sequence[Outside]:
        """Returns what comes into the step before it is scheduled."""
        raise NotImplementedError

    def take_aborts_during(self, step: int, end_ns: int, live: Iterable[str]) -> Sequence[str]:
        """Returns whom to abort while the step executes."""
        raise NotImplementedError

    def may_change(self, live: Iterable[str]) -> bool:
        """True while an arrival, or the abort of a request that lives, is still to come."""
        raise NotImplementedError


class _StepInbox(_Inbox):
    """Everything comes at its recorded step."""

    def __init__(self, workload: Workload) -> None:
        self._agenda = workload.agenda
        self._num_arrivals = sum(
            not isinstance(event, ev.RequestAborted) for entry in self._agenda.values() for event in entry.before
        )
        self._abort_steps = {
            request_id: request.abort.step for request_id, request in workload.requests.items() if request.abort
        }
        self._step = -1

    @property
    def has_arrivals(self) -> bool:
        return self._num_arrivals > 0

    @property
    def next_ns(self) -> int:
        return 0

    def take(self, step: int, now_ns: int) -> Sequence[Outside]:
        self._step = step
        came = self._agenda.get(step, StepAgenda()).before
        self._num_arrivals -= sum(not isinstance(event, ev.RequestAborted) for event in came)
        return came

    def take_aborts_during(self, step: int, end_ns: int, live: Iterable[str]) -> Sequence[str]:
        return [event.request_id for event in self._agenda.get(step, StepAgenda()).during]

    def may_change(self, live: Iterable[str]) -> bool:
        return self.has_arrivals or any(self._abort_steps.get(request_id, -1) > self._step for request_id in live)


class _TimeInbox(_Inbox):
    """Arrivals come once they are tokenized, aborts at the time at which they were taken in."""

    def __init__(self, workload: Workload) -> None:
        arrivals: list[tuple[int, Outside]] = []
        aborts: list[tuple[int, str]] = []
        last_ns = workload.start_ns
        for _, agenda in sorted(workload.agenda.items()):
            for event in agenda.before:
                if isinstance(event, ev.RequestArrived):
                    last_ns = max(last_ns, workload.requests[event.request_id].ready_ns)
                if not isinstance(event, ev.RequestAborted):
                    arrivals.append((last_ns, event))
        for request_id, request in workload.requests.items():
            if request.abort:
                aborts.append((request.abort.time_ns, request_id))
        self._arrivals = deque(arrivals)
        self._aborts = deque(sorted(aborts))

    @property
    def has_arrivals(self) -> bool:
        return bool(self._arrivals)

    @property
    def next_ns(self) -> int:
        return min((queue[0][0] for queue in (self._arrivals, self._aborts) if queue), default=0)

    def take(self, step: int, now_ns: int) -> Sequence[Outside]:
        came: list[Outside] = []
        while self._arrivals and self._arrivals[0][0] <= now_ns:
            came.append(self._arrivals.popleft()[1])
        while self._aborts and self._aborts[0][0] <= now_ns:
            came.append(ev.RequestAborted(request_id=self._aborts.popleft()[1], status="WAITING"))
        return came

    def take_aborts_during(self, step: int, end_ns: int, live: Iterable[str]) -> Sequence[str]:
        came = []
        while self._aborts and self._aborts[0][0] < end_ns:
            came.append(self._aborts.popleft()[1])
        return came

    def may_change(self, live: Iterable[str]) -> bool:
        waiting = set(live)
        return self.has_arrivals or any(request_id in waiting for _, request_id in self._aborts)
