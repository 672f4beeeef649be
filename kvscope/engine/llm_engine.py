"""The step loop: joins scheduler and model runner, and hands each finished step to whoever records it.

A step is: take in what arrived, schedule, run the model, abort what was cancelled meanwhile, append the tokens, end
what is done, hand the events over. Knows neither storage nor screen, and of models only the interfaces it is given.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kvscope import events as ev
from kvscope.engine import settings
from kvscope.engine.input_processor import check_labels, check_length, encode_prompt, rejected
from kvscope.engine.output_processor import OutputProcessor
from kvscope.engine.request_output import OnUpdate
from kvscope.engine.scheduling.batching import new_scheduler
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunner, SchedulerOutput, StepResult
from kvscope.engine.scheduling.progress import ProgressWatch, Stuck
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler
from kvscope.engine.text_codec import TextCodec
from kvscope.errors import EngineError, KvscopeError, UsageError

Phase = Literal["schedule", "forward", "sample", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What a recording says of the model; `eos_token_ids` also end requests."""

    name: str
    device: str = "cpu"
    dtype: str = ""
    kernels: str = ""
    kv_bytes_per_token: int = 0
    eos_token_ids: tuple[int, ...] = ()
    started_at: str = ""
    """Wall clock, ISO 8601 with offset; empty for a scripted run."""
    engine_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request as a caller asks for it; see `LLMEngine.add_request`."""

    prompt: str | Sequence[int]
    sampling: SamplingParams | Mapping[str, Any] | None = None
    is_chat: bool = False
    system: str | None = None
    priority: int = 0
    cache_salt: str | None = None
    request_id: str | None = None
    arrival_time: float | None = None
    on_update: OnUpdate | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a caller of `step` may want to know without reading the recording."""

    step: int
    num_scheduled_tokens: int
    events: Sequence[ev.Event]
    """Empty where nobody records."""
    stuck: Stuck | None
    """Why no further step can bring another token, where that is so."""
    ended_requests: Sequence[Request] = ()
    """Those that ended in the step; the scheduler has forgotten them."""


class LLMEngine:
    """One engine. `add_request` and `abort` may be called from any thread, `step` from one."""

    def __init__(
        self,
        config: SchedulerConfig,
        runner: ModelRunner,
        *,
        model: ModelDescription,
        codec: TextCodec | None = None,
        sink: ev.EventSink | None = None,
        default_sampling: SamplingParams | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Without a `codec` requests are token ids without text. `default_sampling` fills what a request leaves out."""
        self.config = config
        self.step_index = -1
        """The last step that was begun."""
        self.failure: str | None = None
        """The traceback of the step that raised; the engine makes no further step."""
        self._runner = runner
        self._model = model
        self._codec = codec
        self._sink = sink or ev.NullSink()
        self._default_sampling = default_sampling or SamplingParams()
        self._clock_ns = clock_ns
        self._start_ns = clock_ns()
        self._scheduler = new_scheduler(config, is_recording=self._sink.is_recording, clock_ns=self._now_ns)
        self._outputs = OutputProcessor(codec)
        self._arrivals: deque[Request | ev.RequestRejected] = deque()
        self._aborts: deque[str] = deque()
        self._id_lock = threading.Lock()
        self._num_ids = 0
        self._texts_recorded: set[int] = set()
        self._ended: list[Request] = []
        self._phase: Phase = "schedule"
        self._watch = ProgressWatch(self._scheduler)
        self._stuck: Stuck | None = None
        self._record_ns = 0
        self._record(self.configured())

    # --- for callers, from any thread ---------------------------------------------------------------------------------

    def sampling_params(self, given: Mapping[str, Any]) -> SamplingParams:
        """Returns the engine's defaults with these settings. Raises `SettingError`."""
        return settings.sampling_params(given, self._default_sampling)

    def add_request(
        self,
        prompt: str | Sequence[int],
        sampling: SamplingParams | Mapping[str, Any] | None = None,
        *,
        is_chat: bool = False,
        system: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        request_id: str | None = None,
        arrival_time: float | None = None,
        on_update: OnUpdate | None = None,
    ) -> str:
        """Submits text or token ids and returns the request's id; it enters the queue at the next step.

        `is_chat` puts text through the model's chat template as one user message, after `system`. `arrival_time` is in
        seconds, now by default.

        Raises:
            UsageError, ModelError: the request cannot be served; the refusal is recorded with the next step.
            EngineError: the engine has stopped.
        """
        submission = Submission(
            prompt=prompt,
            sampling=sampling,
            is_chat=is_chat,
            system=system,
            priority=priority,
            cache_salt=cache_salt,
            request_id=request_id,
            arrival_time=arrival_time,
            on_update=on_update,
        )
        return self.add_requests([submission])[0]

    def add_requests(self, submissions: Sequence[Submission]) -> list[str]:
        """Submits several requests that enter the queue in one step, in this order, and returns their ids.

        All of them or none. Raises as `add_request`; with several, the message names the one that is refused.
        """
        self._check_alive()
        arrival_ns = self._now_ns()
        given = [submission.request_id for submission in submissions if submission.request_id is not None]
        for number, request_id in enumerate(given):
            if request_id in given[:number]:
                raise UsageError(f"two of these requests are called {request_id!r}: choose another id")
            self._check_id(request_id)
        requests = [self._new_request(number, submissions, arrival_ns) for number in range(len(submissions))]
        for request, submission in zip(requests, submissions, strict=True):
            request.request_id = self._reserve_id(submission.request_id)
            self._outputs.track(request, submission.on_update)
        self._arrivals.extend(requests)  # in one go: the step under way finds all of them, or none
        return [request.request_id for request in requests]

    def _new_request(self, number: int, submissions: Sequence[Submission], arrival_ns: int) -> Request:
        """Returns the request of one submission, without its id; a refusal is recorded, with one."""
        submission = submissions[number]
        try:
            sampling = submission.sampling
            if not isinstance(sampling, SamplingParams):
                sampling = self.sampling_params(sampling or {})
            encoded = encode_prompt(
                self._codec,
                submission.prompt,
                is_chat=submission.is_chat,
                system=submission.system,
                clock_ns=self._now_ns,
            )
            check_length(encoded.token_ids, self.config.max_model_len)
            check_labels(priority=submission.priority, cache_salt=submission.cache_salt)
        except KvscopeError as error:
            self._arrivals.append(rejected(self._reserve_id(submission.request_id), error))
            if len(submissions) > 1:
                error.message = f"prompt {number + 1} of {len(submissions)}: {error.message}"
            raise
        return Request(
            request_id="",
            prompt_token_ids=encoded.token_ids,
            sampling=sampling,
            arrival_time=arrival_ns / 1e9 if submission.arrival_time is None else submission.arrival_time,
            priority=submission.priority,
            cache_salt=submission.cache_salt,
            eos_token_ids=self._model.eos_token_ids,
            prompt=encoded.text,
            arrival_ns=arrival_ns,
            template_ns=encoded.template_ns,
            tokenize_ns=encoded.tokenize_ns,
        )

    def is_known(self, request_id: str) -> bool:
        """True where a request had this id, also a refused one."""
        return self._outputs.is_known(request_id)

    def abort(self, request_id: str) -> bool:
        """Ends a request before the next step, or in the step under way. False where no unfinished one has this id."""
        if not self._outputs.is_tracked(request_id):
            return False
        self._aborts.append(request_id)
        return True

    def abort_all(self) -> None:
        """As `abort`, for every unfinished request."""
        for request_id in self._outputs.tracked_ids():
            self.abort(request_id)

    @property
    def has_work(self) -> bool:
        """True while a request is unfinished, or something came in that no step has recorded."""
        return bool(self._arrivals or self._aborts) or self._scheduler.has_unfinished_requests()

    @property
    def stuck(self) -> Stuck | None:
        """Why no further step can bring another token until a request arrives or is aborted; None while one may."""
        return None if self._arrivals or self._aborts else self._stuck

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.waiting)

    @property
    def num_submitted(self) -> int:
        """Requests that wait for the next step to enter the queue."""
        return len(self._arrivals)

    @property
    def codec(self) -> TextCodec | None:
        return self._codec

    @property
    def scheduler(self) -> Scheduler:
        """Its books, to be read between two steps and never changed."""
        return self._scheduler

    # --- the loop, from one thread ------------------------------------------------------------------------------------

    def step(self) -> StepReport:
        """Makes one step, also where there is nothing to schedule.

        Raises:
            EngineError: the step failed (it is recorded with its error), an earlier one did, or recording failed.
        """
        self._check_alive()
        try:
            output, result = self._make_step()
        except Exception as error:
            self._fail(error)
            raise EngineError(f"step {self.step_index} failed in {self._phase}: {describe(error)}") from error
        events = self._hand_over()
        self._stuck = self._watch.look(output, result)
        self._outputs.deliver()
        return StepReport(output.step, output.total_num_scheduled_tokens, events, self.stuck, self._ended)

    def _make_step(self) -> tuple[SchedulerOutput, StepResult]:
        self._phase = "schedule"
        self.step_index += 1
        self._ended = []
        self._take_in()
        began = self._now_ns()
        output = self._scheduler.schedule()
        scheduled = self._now_ns()
        self._outputs.note_admissions(output)
        self._phase = "forward"
        model_output = self._runner.execute(output)
        self._phase = "update"
        executed = self._now_ns()
        self._take_aborts(during_execution=True)
        result = self._scheduler.update_from_output(output, model_output)
        self._record_texts(token_id for token_ids in result.new_token_ids for token_id in token_ids)
        stops = self._outputs.add_tokens(result, model_output.logprobs, now_ns=self._now_ns())
        for request, stop in stops:
            self._scheduler.finish_request(request.request_id, stop=stop)
        self._end([*result.finished, *(request for request, _ in stops)])
        self._scheduler.update_draft_token_ids(model_output.draft_token_ids)
        self._record(
            ev.StepFinished(
                schedule_ns=scheduled - began,
                forward_ns=model_output.forward_ns or executed - scheduled - model_output.sample_ns,
                sample_ns=model_output.sample_ns,
                update_ns=self._now_ns() - executed,
                record_ns=self._record_ns,
            )
        )
        return output, result

    def _take_in(self) -> None:
        if self._arrivals or self._aborts:
            self._watch.reset()
        while self._arrivals:
            arrival = self._arrivals.popleft()
            if isinstance(arrival, Request):
                self._scheduler.add_request(arrival)
                self._record_texts(arrival.prompt_token_ids)
            else:
                self._record(arrival)
        self._take_aborts(during_execution=False)

    def _take_aborts(self, *, during_execution: bool) -> None:
        """Aborts what was cancelled. A request that has not entered the queue yet is aborted when it has."""
        for _ in range(len(self._aborts)):
            request_id = self._aborts.popleft()
            if request_id in self._scheduler.requests:
                request = self._scheduler.requests[request_id]
                self._scheduler.abort(request_id, during_execution=during_execution)
                self._watch.reset()
                self._end([request])
            elif self._outputs.is_tracked(request_id):
                self._aborts.append(request_id)

    def _end(self, requests: Sequence[Request]) -> None:
        self._outputs.end(requests)
        self._ended.extend(requests)

    def _hand_over(self) -> Sequence[ev.Event]:
        events = self._scheduler.take_events()
        began = self._now_ns()
        try:
            self._sink.write_step(self.step_index, events)
        except Exception as error:
            self.failure = traceback.format_exc()
            self._outputs.fail_all()
            raise EngineError(f"the recording failed, the engine stopped: {describe(error)}") from error
        self._record_ns = self._now_ns() - began
        return events

    def _fail(self, error: Exception) -> None:
        """Takes back what will not be computed, and records the step as far as it came, with its error."""
        self.failure = "".join(traceback.format_exception(error))
        self._scheduler.fail_step()
        self._record(
            ev.StepFailed(
                phase=self._phase, error_type=type(error).__name__, message=str(error), traceback=self.failure
            )
        )
        self._outputs.fail_all()
        self._hand_over()

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise EngineError("the engine has stopped because a step failed: start it again")

    def _check_id(self, request_id: str | None) -> None:
        if request_id is not None and self._outputs.is_known(request_id):
            raise UsageError(f"there was a request {request_id!r} already: choose another id")

    def _reserve_id(self, request_id: str | None) -> str:
        with self._id_lock:
            self._check_id(request_id)
            while request_id is None or self._outputs.is_known(request_id):
                self._num_ids += 1
                request_id = f"req-{self._num_ids}"
            self._outputs.reserve(request_id)
            return request_id

    # --- the record ---------------------------------------------------------------------------------------------------

    def _record(self, event: ev.Event) -> None:
        if self._sink.is_recording:
            self._scheduler.step_events.append(event)

    def _record_texts(self, token_ids: Iterable[int]) -> None:
        """Records what tokens stand for, each at its first occurrence."""
        if self._codec is None or not self._sink.is_recording:
            return
        new = [token_id for token_id in dict.fromkeys(token_ids) if token_id not in self._texts_recorded]
        if new:
            self._texts_recorded.update(new)
            texts = tuple(self._codec.token_bytes(token_id) for token_id in new)
            self._record(ev.TokenTextRecorded(token_ids=tuple(new), token_bytes=texts))

    def configured(self) -> ev.EngineConfigured:
        """Returns the model and the settings, as the first step records them."""
        return ev.EngineConfigured(
            model=self._model.name,
            device=self._model.device,
            dtype=self._model.dtype,
            kernels=self._model.kernels,
            settings=self.config.as_settings(),
            num_gpu_blocks=self.config.num_gpu_blocks,
            block_size=self.config.block_size,
            watermark_blocks=self.config.watermark_blocks,
            kv_bytes_per_token=self._model.kv_bytes_per_token,
            started_at=self._model.started_at,
            engine_version=self._model.engine_version,
            eos_token_ids=self._model.eos_token_ids,
        )

    def _now_ns(self) -> int:
        return self._clock_ns() - self._start_ns


def describe(error: Exception) -> str:
    """Returns the error in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
