"""The engine's thread: what it does on each command, seen through its status and what it records."""

from __future__ import annotations

import errno
import io
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pytest

from kvscope import control
from kvscope import events as ev
from kvscope.control import Accepted, Refused, StopCondition
from kvscope.engine.scheduling.output import SchedulerOutput
from kvscope.session.build import BuiltEngine, ReportProgress
from kvscope.session.engine_loop import EngineLoop
from tests.engine.fakes import ListSink, scripted_engine

TIMEOUT_S = 20.0


class Gate:
    """Stops a model in the middle of a step until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, output: SchedulerOutput) -> None:
        self.reached.set()
        assert self.opened.wait(TIMEOUT_S)


class Bench:
    """An engine loop over a scripted model, with a way to wait for conditions."""

    def __init__(
        self,
        *,
        before_reply: Callable[[SchedulerOutput], None] | None = None,
        may_load: threading.Event | None = None,
        num_gpu_blocks: int = 20,
        replies: Mapping[str, bytes] | None = None,
    ) -> None:
        self.sink = ListSink()
        self.is_recording_closed = False
        self._changed = threading.Condition()
        replies = replies or {f"req-{number}": b"abcdefghijklmnop" for number in range(1, 5)}

        def load(report: ReportProgress) -> BuiltEngine:
            report("reading weights", 0.25)
            assert may_load is None or may_load.wait(TIMEOUT_S)
            engine = scripted_engine(replies, sink=self.sink, before_reply=before_reply, num_gpu_blocks=num_gpu_blocks)
            return BuiltEngine(engine, None, self._close)

        self.loop = EngineLoop(load, self._notify, recording="r.db")
        self.loop.start()

    def _close(self) -> None:
        self.is_recording_closed = True

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, phase: control.EnginePhase) -> control.EngineStatus:
        """Returns the first status of this phase."""
        return self.wait_until(lambda status: status.phase == phase)

    def wait_until(self, is_met: Callable[[control.EngineStatus], bool]) -> control.EngineStatus:
        """Returns the first status that meets the condition."""
        with self._changed:
            assert self._changed.wait_for(lambda: is_met(self.loop.status), TIMEOUT_S), self.loop.status
            return self.loop.status

    def ask(self, command: control.Command) -> control.Reply:
        return self.loop.handle(command)

    def submit(self, prompt: str = "hello", max_tokens: int = 3) -> control.Reply:
        return self.ask(control.Submit(prompt=prompt, is_chat=False, sampling={"max_tokens": max_tokens}))

    def finished(self) -> list[str]:
        return [event.request_id for event in self.sink.events(ev.RequestFinished)]  # type: ignore[union-attr]


@pytest.fixture
def benches() -> Iterator[Callable[..., Bench]]:
    """Makes benches, and ends them."""
    made: list[Bench] = []

    def make(**options: object) -> Bench:
        made.append(Bench(**options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for bench in made:
        bench.ask(control.Shutdown())
        bench.loop.join(TIMEOUT_S)
        assert bench.loop.is_closed


def test_a_submitted_prompt_runs_to_its_end(benches: Callable[..., Bench]) -> None:
    bench = benches()
    bench.wait_for("idle")
    assert bench.submit() == Accepted(request_id="req-1")
    status = bench.wait_for("idle")
    assert bench.finished() == ["req-1"]
    assert (status.step, status.num_running, status.num_waiting, status.num_submitted) == (2, 0, 0, 0)
    assert status.recording == "r.db"


def test_prompts_that_come_while_the_model_loads_run_when_it_has(benches: Callable[..., Bench]) -> None:
    may_load = threading.Event()
    bench = benches(may_load=may_load)
    status = bench.wait_for("loading")
    assert bench.submit("one") == Accepted(request_id="req-1")
    assert bench.submit("two") == Accepted(request_id="req-2")
    assert bench.submit("three") == Accepted(request_id="req-3")
    assert bench.ask(control.Abort(request_id="req-2")) == Accepted()
    assert bench.loop.status.num_submitted == 2
    may_load.set()
    status = bench.wait_for("idle")
    assert bench.finished() == ["req-1", "req-3"]
    assert status.detail == ""


def test_loading_says_what_is_loaded_and_how_far_it_is(benches: Callable[..., Bench]) -> None:
    may_load = threading.Event()
    bench = benches(may_load=may_load)
    assert bench.wait_until(lambda status: status.detail == "reading weights").progress == 0.25
    may_load.set()


def test_a_paused_engine_steps_as_often_as_it_is_told(benches: Callable[..., Bench]) -> None:
    bench = benches()
    bench.wait_for("idle")
    bench.ask(control.Pause())
    bench.submit(max_tokens=4)
    assert bench.loop.status.num_submitted == 1
    bench.ask(control.Step(num_steps=2))
    status = bench.wait_for("paused")
    assert (status.step, status.num_running, len(bench.sink.steps)) == (1, 1, 2)
    bench.ask(control.Step())
    assert bench.wait_for("paused").step == 2
    bench.ask(control.Resume())
    assert bench.wait_for("idle").step == 3


def test_steps_asked_for_during_a_step_are_not_lost(benches: Callable[..., Bench]) -> None:
    gate = Gate()
    bench = benches(before_reply=gate)
    bench.wait_for("idle")
    bench.ask(control.Pause())
    bench.submit(max_tokens=9)
    bench.ask(control.Step())
    assert gate.reached.wait(TIMEOUT_S)
    bench.ask(control.Step())
    bench.ask(control.Step(num_steps=2))
    gate.opened.set()
    assert bench.wait_for("paused").step == 3


@pytest.mark.parametrize(
    ("condition", "step", "detail"),
    [
        (StopCondition(event="TokensSampled"), 0, "TokensSampled in step 0"),
        (StopCondition(event="RequestFinished", request_id="req-2"), 4, "RequestFinished of req-2 in step 4"),
        (StopCondition(request_id="req-2"), 0, "RequestArrived of req-2 in step 0"),
        (StopCondition(step=2), 2, "step 2 reached"),
        (StopCondition(event="RequestFinished", step=1), 2, "RequestFinished in step 2"),
        (StopCondition(expression="finished"), 2, "breakpoint: finished"),
        (StopCondition(expression='request == "req-2" and finished'), 4, 'breakpoint: request == "req-2" and finished'),
        (StopCondition(expression="running < 2"), 2, "breakpoint: running < 2"),
        (StopCondition(expression="step >= 1", event="TokensSampled"), 1, "TokensSampled in step 1"),
    ],
)
def test_the_engine_pauses_by_itself_where_a_condition_holds(
    benches: Callable[..., Bench], condition: StopCondition, step: int, detail: str
) -> None:
    bench = benches()
    bench.wait_for("idle")
    bench.ask(control.Pause())
    assert bench.ask(control.SetStopConditions(conditions=(condition,))) == Accepted()
    bench.submit(max_tokens=3)
    bench.submit("world", max_tokens=4)
    bench.ask(control.Resume())
    status = bench.wait_for("paused")
    assert (status.step, status.detail) == (step, detail)


def test_a_step_condition_holds_once(benches: Callable[..., Bench]) -> None:
    bench = benches()
    bench.wait_for("idle")
    bench.ask(control.SetStopConditions(conditions=(StopCondition(step=1),)))
    bench.submit(max_tokens=4)
    assert bench.wait_for("paused").step == 1
    bench.ask(control.Resume())
    assert bench.wait_for("idle").step == 3


def test_a_breakpoint_on_a_state_stops_where_it_begins_and_goes_on_when_the_others_change(
    benches: Callable[..., Bench],
) -> None:
    """Sent again with another one, a breakpoint that has stopped does not stop at the same state once more."""
    bench = benches()
    bench.wait_for("idle")
    running = StopCondition(expression="running > 0")
    bench.ask(control.SetStopConditions(conditions=(running,)))
    bench.submit(max_tokens=6)
    assert bench.wait_for("paused").step == 0
    bench.ask(control.SetStopConditions(conditions=(running, StopCondition(expression="output_tokens == 3"))))
    bench.ask(control.Resume())
    status = bench.wait_for("paused")
    assert (status.step, status.detail) == (2, "breakpoint: output_tokens == 3")
    bench.ask(control.Resume())
    assert bench.wait_for("idle").step == 5


def test_a_stuck_queue_makes_one_empty_step_and_says_why(benches: Callable[..., Bench]) -> None:
    bench = benches(num_gpu_blocks=3)
    bench.wait_for("idle")
    bench.ask(control.SetStopConditions(conditions=(StopCondition(is_stalled=True),)))
    bench.submit("x" * 12)
    assert bench.wait_for("paused").detail == "nothing was scheduled in step 0"
    bench.ask(control.Resume())
    status = bench.wait_for("idle")
    assert (status.step, status.detail) == (0, "stuck: req-1 can never go on")
    bench.ask(control.Abort(request_id="req-1"))
    status = bench.wait_until(lambda status: status.phase == "idle" and status.detail == "")
    assert (status.step, status.num_waiting) == (1, 0)


def test_an_abort_in_the_middle_of_a_step_is_answered_at_once(benches: Callable[..., Bench]) -> None:
    """The commands of a screen must not wait for a forward pass."""
    gate = Gate()
    bench = benches(before_reply=gate)
    bench.wait_for("idle")
    bench.submit()
    assert gate.reached.wait(TIMEOUT_S)
    assert bench.ask(control.Abort(request_id="req-1")) == Accepted()
    assert bench.ask(control.GetStatus()) == bench.loop.status
    gate.opened.set()
    bench.wait_for("idle")
    assert bench.sink.events(ev.RequestAborted) == [
        ev.RequestAborted(request_id="req-1", status="RUNNING", during_execution=True)
    ]


def test_shutdown_aborts_what_is_unfinished_and_closes_the_recording(benches: Callable[..., Bench]) -> None:
    bench = benches()
    bench.wait_for("idle")
    bench.ask(control.Pause())
    bench.submit(max_tokens=9)
    bench.ask(control.Step())
    bench.wait_for("paused")
    bench.ask(control.Shutdown())
    bench.wait_for("stopped")
    assert bench.is_recording_closed
    assert bench.sink.events(ev.RequestAborted) == [ev.RequestAborted(request_id="req-1", status="RUNNING")]
    assert bench.submit() == Refused(message="the engine takes no commands any more, it is shutting down")


def test_shutdown_when_idle_lets_requests_finish_first(benches: Callable[..., Bench]) -> None:
    gate = Gate()
    bench = benches(before_reply=gate)
    bench.wait_for("idle")
    bench.submit()
    bench.ask(control.Shutdown(when="idle"))
    gate.opened.set()
    bench.wait_for("stopped")
    assert bench.finished() == ["req-1"]


def test_nobody_watching_resumes_what_was_paused(benches: Callable[..., Bench]) -> None:
    bench = benches()
    bench.wait_for("idle")
    bench.ask(control.Pause())
    bench.submit()
    assert bench.loop.is_quiet
    bench.loop.run_unwatched()
    bench.wait_for("idle")
    assert bench.finished() == ["req-1"]


def test_a_failed_step_is_said_with_its_traceback_and_closes_the_recording(benches: Callable[..., Bench]) -> None:
    def fail(output: SchedulerOutput) -> None:
        raise ValueError("no such kernel")

    bench = benches(before_reply=fail)
    bench.wait_for("idle")
    bench.submit()
    status = bench.wait_for("failed")
    assert status.detail == "step 0 failed in forward: ValueError: no such kernel"
    assert "raise ValueError" in status.error
    bench.loop.join(TIMEOUT_S)
    assert bench.is_recording_closed
    assert isinstance(bench.sink.steps[0][-1], ev.StepFailed)
    assert bench.submit() == Refused(message=f"the engine takes no commands any more, it failed: {status.detail}")


def test_an_engine_that_cannot_load_fails_with_the_reason() -> None:
    def load(report: ReportProgress) -> BuiltEngine:
        raise FileNotFoundError("no weights")

    loop = EngineLoop(load, lambda: None)
    loop.start()
    loop.join(TIMEOUT_S)
    assert (loop.status.phase, loop.status.detail) == ("failed", "FileNotFoundError: no weights")


def test_an_engine_that_cannot_even_write_its_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the process stayed for ever: its thread died of the log before it had said that it is closed."""

    def load(report: ReportProgress) -> BuiltEngine:
        raise FileNotFoundError("no weights")

    class FullDisk(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", FullDisk())
    loop = EngineLoop(load, lambda: None)
    loop.start()
    loop.join(TIMEOUT_S)
    assert (loop.is_closed, loop.status.phase) == (True, "failed")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (control.Submit(prompt="", is_chat=False), "the prompt is empty: give at least one word"),
        (control.Submit(prompt="x", sampling={"top_q": 1}), "there is no setting 'top_q': did you mean top_p?"),
        (control.Abort(request_id="req-9"), "no unfinished request is called req-9"),
        (control.Step(num_steps=0), "the number of steps must be at least 1, not 0"),
        (control.Step(), "there is nothing to run: submit a prompt first"),
        (
            control.SetStopConditions(conditions=(StopCondition(event="RequestPreemptd"),)),
            "no event is called 'RequestPreemptd': did you mean RequestPreempted?",
        ),
        (
            control.SetStopConditions(conditions=(StopCondition(),)),
            "a stop condition needs an event, a request, a step, is_stalled or an expression",
        ),
        (
            control.SetStopConditions(conditions=(StopCondition(expression="free_block < 4"),)),
            "column 1: there is no field free_block: did you mean free_blocks?",
        ),
    ],
)
def test_a_command_that_cannot_be_obeyed_is_refused_with_the_reason(
    benches: Callable[..., Bench], command: control.Command, message: str
) -> None:
    bench = benches()
    bench.wait_for("idle")
    reply = bench.ask(command)
    assert isinstance(reply, Refused)
    assert reply.message == message


# Several at once

PLAN_IDS = ("plan-1", "plan-2", "late-1", "plan.2-1", "plan.2-2", "late.2-1", "a-1")
PLAN_REPLIES = dict.fromkeys(PLAN_IDS, b"abcdefghijklmnop")

E = TypeVar("E", bound=ev.Event)


def events(bench: Bench, kind: type[E]) -> list[E]:
    return [event for step in bench.sink.steps for event in step if isinstance(event, kind)]


def together(*prompts: str, request_ids: tuple[str | None, ...] = ()) -> control.SubmitTogether:
    ids = request_ids or (None,) * len(prompts)
    return control.SubmitTogether(
        submissions=tuple(
            control.Submit(prompt=prompt, is_chat=False, sampling={"max_tokens": 2}, request_id=request_id)
            for prompt, request_id in zip(prompts, ids, strict=True)
        )
    )


def arrivals(bench: Bench) -> dict[str, int]:
    """The step in which each request arrived."""
    return {
        event.request_id: step
        for step, events in enumerate(bench.sink.steps)
        for event in events
        if isinstance(event, ev.RequestArrived)
    }


def test_prompts_submitted_together_arrive_in_one_step_also_beside_a_running_one(benches: Callable[..., Bench]) -> None:
    gate = Gate()
    bench = benches(before_reply=gate)
    bench.wait_for("idle")
    bench.submit()
    assert gate.reached.wait(TIMEOUT_S)
    assert bench.ask(together("one", "two", "six")) == Accepted(
        request_id="req-2", request_ids=("req-2", "req-3", "req-4")
    )
    gate.opened.set()
    bench.wait_for("idle")
    assert arrivals(bench) == {"req-1": 0, "req-2": 1, "req-3": 1, "req-4": 1}


def test_of_several_prompts_none_is_taken_where_one_is_refused(benches: Callable[..., Bench]) -> None:
    bench = benches()
    bench.wait_for("idle")
    reply = bench.ask(together("one", "x" * 32, "two"))
    assert isinstance(reply, Refused)
    assert reply.message.startswith("prompt 2 of 3: the prompt has 32 tokens, max_model_len (32) allows 31")
    assert reply.setting == "max_model_len"
    assert bench.ask(together("one", "two", request_ids=("a", "a"))) == Refused(
        message="two of these requests are called 'a': choose another id"
    )
    bench.wait_for("idle")
    assert arrivals(bench) == {}
    assert [event.request_id for event in events(bench, ev.RequestRejected)] == ["req-1"]


PLAN = (
    control.PlannedRequest(request_id="plan-1", num_own_tokens=3, num_shared_tokens=5, num_output_tokens=4),
    control.PlannedRequest(
        request_id="plan-2", num_own_tokens=2, num_shared_tokens=5, num_output_tokens=3, before_step=2
    ),
    control.PlannedRequest(request_id="late-1", num_own_tokens=4, num_output_tokens=2, before_step=99, priority=7),
)


def test_requests_of_a_plan_come_before_their_steps_or_when_the_engine_is_idle(benches: Callable[..., Bench]) -> None:
    bench = benches(replies=PLAN_REPLIES)
    bench.wait_for("idle")
    assert bench.ask(control.SubmitPlan(requests=PLAN)) == Accepted(
        request_id="plan-1", request_ids=("plan-1", "plan-2", "late-1")
    )
    status = bench.wait_for("idle")
    assert status.num_submitted == 0
    found = {event.request_id: event for event in events(bench, ev.RequestArrived)}
    assert arrivals(bench) == {"plan-1": 0, "plan-2": 2, "late-1": 5}
    first, second = found["plan-1"].prompt_token_ids, found["plan-2"].prompt_token_ids
    assert (len(first), len(second), first[:5] == second[:5], first[5:7] == second[5:7]) == (8, 7, True, False)
    assert found["late-1"].priority == 7
    assert sorted(bench.finished()) == ["late-1", "plan-1", "plan-2"]


def test_a_plan_waits_while_the_engine_is_paused_and_is_named_anew_the_second_time(
    benches: Callable[..., Bench],
) -> None:
    bench = benches(replies=PLAN_REPLIES)
    bench.wait_for("idle")
    bench.ask(control.Pause())
    bench.ask(control.SubmitPlan(requests=PLAN, seed=1))
    assert bench.ask(control.SubmitPlan(requests=PLAN, seed=2)) == Accepted(
        request_id="plan.2-1", request_ids=("plan.2-1", "plan.2-2", "late.2-1")
    )
    assert bench.wait_for("paused").num_submitted == 6
    assert bench.ask(control.Submit(prompt="x", request_id="late-1")) == Refused(
        message="a request late-1 is still to come: choose another id"
    )
    assert bench.ask(control.Abort(request_id="late-1")) == Accepted()
    bench.ask(control.Step())
    status = bench.wait_until(lambda status: status.phase == "paused" and status.step == 0)
    assert (status.num_submitted, status.num_running, status.num_waiting) == (3, 1, 1)
    bench.ask(control.Resume())
    bench.wait_for("idle")
    assert "late-1" not in arrivals(bench)
    words = {event.request_id: event.prompt_token_ids for event in events(bench, ev.RequestArrived)}
    assert words["plan-1"] != words["plan.2-1"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            control.PlannedRequest(request_id="a-1", num_own_tokens=32, num_output_tokens=1),
            "the prompt has 32 tokens, max_model_len (32) allows 31",
        ),
        (
            control.PlannedRequest(request_id="a-1", num_own_tokens=0, num_output_tokens=1),
            "a-1: prompt and answer need",
        ),
        (
            control.PlannedRequest(request_id="a-1", num_own_tokens=1, num_output_tokens=0),
            "a-1: prompt and answer need",
        ),
        (control.PlannedRequest(request_id="a-1", num_own_tokens=-1, num_output_tokens=1), "a-1: lengths and steps"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_whole(
    benches: Callable[..., Bench], request_: control.PlannedRequest, message: str
) -> None:
    bench = benches(replies=PLAN_REPLIES)
    bench.wait_for("idle")
    reply = bench.ask(control.SubmitPlan(requests=(PLAN[0], request_)))
    assert isinstance(reply, Refused)
    assert reply.message.startswith(message)
    assert (bench.loop.status.num_submitted, bench.sink.steps) == (0, bench.sink.steps[:1])


def test_an_engine_that_is_told_to_finish_also_runs_what_is_still_to_come(benches: Callable[..., Bench]) -> None:
    bench = benches(replies=PLAN_REPLIES)
    bench.wait_for("idle")
    bench.ask(control.Pause())
    bench.ask(control.SubmitPlan(requests=PLAN))
    bench.ask(control.Shutdown(when="idle"))
    bench.loop.join(TIMEOUT_S)
    assert sorted(bench.finished()) == ["late-1", "plan-1", "plan-2"]
