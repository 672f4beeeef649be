"""Runs a scenario: the real scheduler over a scripted model, to its end or to where it can make no more progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvscope.engine.scheduling.batching import new_scheduler
from kvscope.engine.scheduling.progress import ProgressWatch, Stuck
from kvscope.engine.scheduling.request import Request
from kvscope.engine.scheduling.scenario import Scenario, ScenarioRequest
from kvscope.engine.scheduling.scripted_runner import Script, ScriptedRunner
from kvscope.events import EngineConfigured, Event, EventSink, StepFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    num_steps: int
    stuck: Stuck | None
    hit_max_steps: bool
    num_scheduled_tokens: int
    num_empty_steps: int
    """Steps that scheduled nothing."""
    requests: Sequence[Request]
    """All that arrived, in the scenario's order; `status` says what became of each."""


@dataclass(slots=True)
class _Agenda:
    """What comes from outside before and during a step."""

    arrivals: list[ScenarioRequest] = field(default_factory=list)
    cancels: list[str] = field(default_factory=list)
    cancels_mid: list[str] = field(default_factory=list)


class ScriptedRun:
    """A scenario under way, one step at a time; each step's events go to the sink.

    Order inside a step: arrivals, cancels, schedule, model, cancels during execution, update, new drafts.
    """

    def __init__(self, scenario: Scenario, sink: EventSink) -> None:
        self.scenario = scenario
        self.scheduler = new_scheduler(scenario.config, is_recording=sink.is_recording)
        self.stuck: Stuck | None = None
        self.next_step = 0
        self.num_scheduled_tokens = 0
        self.num_empty_steps = 0
        self._sink = sink
        self._runner = ScriptedRunner(scenario.config.num_spec_tokens)
        self._watch = ProgressWatch(self.scheduler)
        self._arrived: dict[str, Request] = {}
        self._num_to_arrive = len(scenario.requests)
        self._cancel_steps = {
            request.id: request.cancel_step for request in scenario.requests if request.cancel_step is not None
        }
        self._agenda: defaultdict[int, _Agenda] = defaultdict(_Agenda)
        for request in scenario.requests:
            self._agenda[request.arrival_step].arrivals.append(request)
            if request.cancel_step is not None:
                agenda = self._agenda[request.cancel_step]
                (agenda.cancels_mid if request.cancel_mid else agenda.cancels).append(request.id)

    @property
    def is_done(self) -> bool:
        """Nothing lives and nothing is still to arrive, or no progress is possible."""
        return self.stuck is not None or not (self._num_to_arrive or self.scheduler.has_unfinished_requests())

    def run(self, max_steps: int | None = None) -> Outcome:
        """Runs to the end, or so many steps (the scenario's own limit by default)."""
        limit = self.scenario.max_steps if max_steps is None else max_steps
        while not self.is_done and self.next_step < limit:
            self.run_step()
        return Outcome(
            num_steps=self.next_step,
            stuck=self.stuck,
            hit_max_steps=not self.is_done,
            num_scheduled_tokens=self.num_scheduled_tokens,
            num_empty_steps=self.num_empty_steps,
            requests=list(self._arrived.values()),
        )

    def run_step(self) -> None:
        """Runs one step and writes its events."""
        step, scheduler = self.next_step, self.scheduler
        agenda = self._agenda.pop(step, _Agenda())
        for entry in agenda.arrivals:
            self._arrive(entry)
        for request_id in agenda.cancels:
            scheduler.abort(request_id)
        output = scheduler.schedule()
        model_output = self._runner.execute(output)
        for request_id in agenda.cancels_mid:
            scheduler.abort(request_id, during_execution=True)
        result = scheduler.update_from_output(output, model_output)
        scheduler.update_draft_token_ids(model_output.draft_token_ids)
        self.next_step += 1
        self.num_scheduled_tokens += output.total_num_scheduled_tokens
        self.num_empty_steps += not output.requests
        if self._sink.is_recording:
            self._write_step(step, scheduler.take_events())
        if agenda.arrivals or agenda.cancels or agenda.cancels_mid:
            self._watch.reset()
        if not self._is_more_to_come():
            self.stuck = self._watch.look(output, result)

    def _arrive(self, entry: ScenarioRequest) -> None:
        request = entry.new_request()
        self._arrived[entry.id] = request
        self._num_to_arrive -= 1
        self._runner.scripts[entry.id] = Script(entry.output_token_ids, entry.drafts)
        self.scheduler.add_request(request)

    def _is_more_to_come(self) -> bool:
        """An arrival, or the abort of a request that lives: either may free a run that stands still."""
        return self._num_to_arrive > 0 or any(
            step >= self.next_step and request_id in self.scheduler.requests
            for request_id, step in self._cancel_steps.items()
        )

    def _write_step(self, step: int, events: list[Event]) -> None:
        if step == 0:
            events.insert(0, self._configured())
        events.append(StepFinished())
        self._sink.write_step(step, events)

    def _configured(self) -> EngineConfigured:
        config = self.scenario.config
        return EngineConfigured(
            model="scripted",
            device="none",
            dtype="none",
            settings=config.as_settings(),
            num_gpu_blocks=config.num_gpu_blocks,
            block_size=config.block_size,
            watermark_blocks=config.watermark_blocks,
        )
