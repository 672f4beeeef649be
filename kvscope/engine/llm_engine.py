"""The step loop: joins scheduler and model runner, and hands each finished step to whoever records it.

A step is: take in what arrived, schedule, run the model, abort what was cancelled meanwhile, append the tokens, end
what is done, hand the events over. Knows neither storage nor screen, and of models only the interfaces it is given.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kvscope import events as ev
from kvscope.engine.arrivals import Arrivals
from kvscope.engine.input_processor import InputProcessor, Submission
from kvscope.engine.model_description import ModelDescription
from kvscope.engine.output_processor import OutputProcessor
from kvscope.engine.request_output import OnUpdate
from kvscope.engine.scheduling.batching import new_scheduler
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunner, SchedulerOutput, StepResult
from kvscope.engine.scheduling.progress import ProgressWatch, Stuck
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler
from kvscope.engine.text_codec import TextCodec
from kvscope.errors import EngineError

Phase = Literal["schedule", "forward", "sample", "update"]


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
        self._clock_ns = clock_ns
        self._start_ns = clock_ns()
        self._scheduler = new_scheduler(config, is_recording=self._sink.is_recording, clock_ns=self._now_ns)
        self._inputs = InputProcessor(config, model, codec, default_sampling or SamplingParams(), self._now_ns)
        self._outputs = OutputProcessor(codec)
        self._arrivals = Arrivals(self._inputs, self._outputs)
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
        return self._inputs.sampling_params(given)

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
        return self._arrivals.add(submissions, self._now_ns())

    def is_known(self, request_id: str) -> bool:
        """True where a request had this id, also a refused one."""
        return self._arrivals.is_known(request_id)

    def abort(self, request_id: str) -> bool:
        """Ends a request before the next step, or in the step under way. False where no unfinished one has this id."""
        return self._arrivals.abort(request_id)

    def abort_all(self) -> None:
        """As `abort`, for every unfinished request."""
        for request_id in self._outputs.tracked_ids():
            self.abort(request_id)

    @property
    def has_work(self) -> bool:
        """True while a request is unfinished, or something came in that no step has recorded."""
        return not self._arrivals.is_empty or self._scheduler.has_unfinished_requests()

    @property
    def stuck(self) -> Stuck | None:
        """Why no further step can bring another token until a request arrives or is aborted; None while one may."""
        return self._stuck if self._arrivals.is_empty else None

    @property
    def num_running(self) -> int:
        """Requests that hold a sequence, with a token in the last step or not."""
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Requests in the waiting queue, preempted ones included."""
        return len(self._scheduler.waiting)

    @property
    def num_submitted(self) -> int:
        """Requests that wait for the next step to enter the queue."""
        return self._arrivals.num_requests

    @property
    def codec(self) -> TextCodec | None:
        """What makes text of tokens; None where the engine knows only tokens."""
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
        self._arrivals.check_open()
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
        if not self._arrivals.is_empty:
            self._watch.reset()
        for arrival in self._arrivals.take():
            if isinstance(arrival, Request):
                self._scheduler.add_request(arrival)
                self._record_texts(arrival.prompt_token_ids)
            else:
                self._record(arrival)
        self._take_aborts(during_execution=False)

    def _take_aborts(self, *, during_execution: bool) -> None:
        """Aborts what was cancelled. A request that has not entered the queue yet is aborted when it has."""
        for request_id in self._arrivals.take_aborts():
            request = self._scheduler.requests.get(request_id)
            if request is None:
                self._arrivals.abort(request_id)  # again: nothing where it has ended meanwhile
                continue
            self._scheduler.abort(request_id, during_execution=during_execution)
            self._watch.reset()
            self._end([request])

    def _end(self, requests: Sequence[Request]) -> None:
        self._outputs.end(requests)
        self._ended.extend(requests)

    def _hand_over(self) -> Sequence[ev.Event]:
        events = self._scheduler.take_events()
        began = self._now_ns()
        try:
            self._sink.write_step(self.step_index, events)
        except Exception as error:
            self._close(traceback.format_exc())
            raise EngineError(f"the recording failed, the engine stopped: {describe(error)}") from error
        self._record_ns = self._now_ns() - began
        return events

    def _fail(self, error: Exception) -> None:
        """Takes back what will not be computed, and records the step as far as it came, with its error."""
        lines = "".join(traceback.format_exception(error))
        self._scheduler.fail_step()
        self._record(
            ev.StepFailed(phase=self._phase, error_type=type(error).__name__, message=str(error), traceback=lines)
        )
        self._close(lines)
        self._hand_over()

    def _close(self, failure: str) -> None:
        """Lets nobody in any more, and tells everybody who is in."""
        self.failure = failure
        self._arrivals.close()
        self._outputs.fail_all()

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
        return self._model.configured(self.config)

    def _now_ns(self) -> int:
        return self._clock_ns() - self._start_ns


def describe(error: Exception) -> str:
    """Returns the error in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
