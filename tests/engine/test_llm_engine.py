"""The step loop with a scripted model: what it records, what callers get, and how it ends requests and itself."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from kvscope import events as ev
from kvscope.engine.input_processor import Submission
from kvscope.engine.llm_engine import LLMEngine
from kvscope.engine.request_output import RequestOutput, RequestUpdate
from kvscope.engine.scheduling.output import SchedulerOutput
from kvscope.engine.scheduling.request import SamplingParams
from kvscope.errors import EngineError, UsageError
from kvscope.state import EngineState
from tests.engine.fakes import ListSink, scripted_engine


class Caller:
    """Collects what an engine tells about requests."""

    def __init__(self) -> None:
        self.updates: list[RequestUpdate] = []

    def __call__(self, update: RequestUpdate) -> None:
        self.updates.append(update)

    @property
    def pieces(self) -> list[str]:
        return [update.new_text for update in self.updates]

    @property
    def output(self) -> RequestOutput:
        (output,) = [update.output for update in self.updates if update.output is not None]
        return output


def run(engine: LLMEngine) -> None:
    while engine.has_work and engine.stuck is None:
        engine.step()


def test_two_requests_are_recorded_event_by_event() -> None:
    sink = ListSink()
    engine = scripted_engine({"req-1": b"x$", "req-2": b"yz"}, sink=sink, max_num_batched_tokens=9)
    engine.add_request("abcdef")
    engine.add_request("abcdXY", {"max_tokens": 2, "temperature": 0})
    run(engine)
    assert sink.steps == [
        [
            ev.EngineConfigured(
                model="scripted",
                device="cpu",
                dtype="",
                settings=engine.config.as_settings(),
                num_gpu_blocks=20,
                block_size=4,
                watermark_blocks=0,
                eos_token_ids=(36,),
            ),
            ev.RequestArrived(
                request_id="req-1",
                prompt_token_ids=tuple(b"abcdef"),
                max_tokens=16,
                queue_position=0,
                prompt="abcdef",
                arrival_time=0.0,
            ),
            ev.TokenTextRecorded(token_ids=tuple(b"abcdef"), token_bytes=(b"a", b"b", b"c", b"d", b"e", b"f")),
            ev.RequestArrived(
                request_id="req-2",
                prompt_token_ids=tuple(b"abcdXY"),
                max_tokens=2,
                queue_position=1,
                prompt="abcdXY",
                sampling={"temperature": 0.0, "max_tokens": 2},
                arrival_time=0.0,
            ),
            ev.TokenTextRecorded(token_ids=tuple(b"XY"), token_bytes=(b"X", b"Y")),
            ev.StepStarted(step=0, token_budget=9),
            ev.PrefixLookedUp(request_id="req-1", num_hit_tokens=0, block_ids=(), num_free_hit_blocks=0),
            ev.BlockAllocated(request_id="req-1", block_ids=(1, 2)),
            ev.BlockCached(
                request_id="req-1", first_index=0, block_ids=(1,), block_hashes=cached_hashes(sink, "req-1")
            ),
            ev.RequestAdmitted(request_id="req-1", num_tokens=6, num_hit_tokens=0, num_scheduled_tokens=6),
            ev.PrefixLookedUp(request_id="req-2", num_hit_tokens=4, block_ids=(1,), num_free_hit_blocks=0),
            ev.BlockTouched(request_id="req-2", block_ids=(1,), ref_cnts=(2,)),
            ev.BlockAllocated(request_id="req-2", block_ids=(3,)),
            ev.PrefixCacheHit(request_id="req-2", num_hit_tokens=4, num_own_hit_tokens=0, block_ids=(1,)),
            ev.RequestAdmitted(request_id="req-2", num_tokens=6, num_hit_tokens=4, num_scheduled_tokens=2),
            ev.AdmissionEnded(reason="empty", num_waiting=0, token_budget_left=1),
            ev.TokensScheduled(request_ids=("req-1", "req-2"), num_tokens=(6, 2)),
            ev.TokensSampled(request_ids=("req-1", "req-2"), token_ids=tuple(b"xy")),
            ev.TokenTextRecorded(token_ids=tuple(b"xy"), token_bytes=(b"x", b"y")),
            ev.StepFinished(),
        ],
        [
            ev.StepStarted(step=1, token_budget=9),
            ev.AdmissionEnded(reason="empty", num_waiting=0, token_budget_left=7),
            ev.TokensScheduled(request_ids=("req-1", "req-2"), num_tokens=(1, 1)),
            ev.TokensSampled(request_ids=("req-1", "req-2"), token_ids=tuple(b"$z")),
            ev.RequestFinished(request_id="req-1", reason="stop", num_output_tokens=2),
            ev.BlockReleased(request_id="req-1", freed_to_head=(2,), freed_to_tail=(), still_held=(1,)),
            ev.RequestFinished(request_id="req-2", reason="length", num_output_tokens=2),
            ev.BlockReleased(request_id="req-2", freed_to_head=(3,), freed_to_tail=(1,), still_held=()),
            ev.TokenTextRecorded(token_ids=tuple(b"$z"), token_bytes=(b"$", b"z")),
            ev.StepFinished(),
        ],
    ]


def cached_hashes(sink: ListSink, request_id: str) -> tuple[int, ...]:
    """The hashes are the scheduler's business; its own tests know them."""
    (event,) = [event for event in sink.events(ev.BlockCached) if getattr(event, "request_id", None) == request_id]
    assert isinstance(event, ev.BlockCached)
    return event.block_hashes


def test_a_result_has_tokens_text_hits_and_times() -> None:
    ticks = itertools.count(0, 10)
    engine = scripted_engine({"a": b"hey$", "b": b"you$"}, clock_ns=lambda: next(ticks))
    first, second = Caller(), Caller()
    engine.add_request("abcde", request_id="a", on_update=first)
    run(engine)
    engine.add_request("abcde", request_id="b", on_update=second)
    run(engine)
    output = second.output
    assert (output.request_id, output.prompt, output.text) == ("b", "abcde", "you")
    assert output.prompt_token_ids == tuple(b"abcde")
    assert output.output_token_ids == tuple(b"you$")
    assert (output.finish_reason, output.stop_reason) == ("stop", None)
    assert (first.output.num_hit_tokens, output.num_hit_tokens) == (0, 4)
    assert first.output.ttft_ns is not None
    assert first.output.ttft_ns > 0
    assert len(output.itl_ns) == 3
    assert all(itl > 0 for itl in output.itl_ns)


def test_the_hits_of_a_result_are_those_of_its_prompt_not_of_its_own_blocks_after_preemption() -> None:
    sink = ListSink()
    engine = scripted_engine({"a": b"aaaaaa$", "b": b"bbbbbb$"}, num_gpu_blocks=5, sink=sink, max_num_batched_tokens=16)
    callers = Caller(), Caller()
    for request_id, caller in zip("ab", callers, strict=True):
        engine.add_request(request_id * 6, request_id=request_id, on_update=caller)
    run(engine)
    resumed = [event.num_hit_tokens for event in sink.events(ev.RequestResumed) if isinstance(event, ev.RequestResumed)]
    assert resumed == [4]
    assert [(caller.output.num_hit_tokens, caller.output.num_preemptions) for caller in callers] == [(0, 0), (0, 1)]


def test_streamed_text_never_shows_half_a_character() -> None:
    reply = "né€🙂".encode() + b"$"
    engine = scripted_engine({"req-1": reply})
    caller = Caller()
    engine.add_request("hi", on_update=caller)
    run(engine)
    assert "".join(caller.pieces) == "né€🙂"
    assert caller.pieces == ["n", "", "é", "", "", "€", "", "", "", "🙂", ""]


def test_of_a_character_that_never_ends_no_half_is_given() -> None:
    reply = "né€".encode()
    texts = {}
    for max_tokens in range(1, 7):
        engine = scripted_engine({"req-1": reply})
        caller = Caller()
        engine.add_request("hi", {"max_tokens": max_tokens}, on_update=caller)
        run(engine)
        texts[caller.output.output_token_ids] = caller.output.text, "".join(caller.pieces)
    assert texts == {
        tuple(b"n"): ("n", "n"),
        tuple(b"n\xc3"): ("n", "n"),
        tuple(b"n\xc3\xa9"): ("né", "né"),
        tuple(b"n\xc3\xa9\xe2"): ("né", "né"),
        tuple(b"n\xc3\xa9\xe2\x82"): ("né", "né"),
        tuple(b"n\xc3\xa9\xe2\x82\xac"): ("né€", "né€"),
    }


def test_a_stop_string_over_several_tokens_ends_the_request_and_is_never_streamed() -> None:
    sink = ListSink()
    engine = scripted_engine({"req-1": b"one\n\nQ: two"}, sink=sink)
    caller = Caller()
    engine.add_request("hi", {"stop": ["\n\nQ", "zzz"]}, on_update=caller)
    run(engine)
    assert (caller.output.text, caller.output.finish_reason, caller.output.stop_reason) == ("one", "stop", "\n\nQ")
    assert caller.pieces == ["o", "n", "e", "", "", ""]
    assert sink.events(ev.RequestFinished) == [
        ev.RequestFinished(request_id="req-1", reason="stop", num_output_tokens=6, stop="\n\nQ")
    ]
    kinds = [type(event).__name__ for event in sink.steps[-1]]
    assert kinds[-5:] == [
        "TokensSampled",
        "TokenTextRecorded",
        "RequestFinished",
        "BlockReleased",
        "StepFinished",
    ]


def test_a_stop_string_that_comes_with_the_last_token_allowed_is_why_it_ended() -> None:
    """The text is cut there, so "length" would say that there was more. The scheduler saw only the length."""
    sink = ListSink()
    engine = scripted_engine({"req-1": b"ab.cd"}, sink=sink)
    caller = Caller()
    engine.add_request("hi", {"stop": ".", "max_tokens": 3}, on_update=caller)
    run(engine)
    assert (caller.output.text, caller.output.finish_reason, caller.output.stop_reason) == ("ab", "stop", ".")
    assert sink.events(ev.RequestFinished) == [
        ev.RequestFinished(request_id="req-1", reason="length", num_output_tokens=3)
    ]


def test_text_that_only_begins_like_a_stop_string_is_given_later() -> None:
    engine = scripted_engine({"req-1": b"a\nb$"})
    caller = Caller()
    engine.add_request("hi", {"stop": "\n\n"}, on_update=caller)
    run(engine)
    assert caller.pieces == ["a", "", "\nb", ""]


def test_stop_strings_count_only_after_min_tokens() -> None:
    engine = scripted_engine({"req-1": b".ab.cd"})
    caller = Caller()
    engine.add_request("hi", {"stop": ".", "min_tokens": 2}, on_update=caller)
    run(engine)
    assert caller.output.text == ".ab"


def test_the_token_that_stops_a_request_is_in_its_output_and_not_in_its_text() -> None:
    """As in vLLM: who asks for stop_token_ids would otherwise have to cut the token's text off again."""
    engine = scripted_engine({"req-1": b"ab.cd"})
    caller = Caller()
    engine.add_request("hi", {"stop_token_ids": [ord(".")], "stop": ["b."]}, on_update=caller)
    run(engine)
    assert (caller.output.text, caller.output.output_token_ids) == ("ab", tuple(b"ab."))
    assert (caller.output.finish_reason, caller.output.stop_reason) == ("stop", "46")
    assert caller.pieces == ["a", "", "b"]


def test_more_tokens_than_there_is_room_for_end_at_the_room() -> None:
    """With min_tokens beyond max_model_len the request stood still, with its blocks, until somebody aborted it."""
    engine = scripted_engine({"req-1": b"x" * 40}, max_num_batched_tokens=32)
    caller = Caller()
    engine.add_request("a" * 28, {"min_tokens": 20, "max_tokens": 40}, on_update=caller)
    run(engine)
    assert (engine.stuck, caller.output.finish_reason, caller.output.text) == (None, "length", "xxxx")


@pytest.mark.parametrize(
    ("prompt", "sampling", "reason", "have", "limit", "message"),
    [
        ("", {}, "prompt", 0, 1, "the prompt is empty"),
        ([], {}, "prompt", 0, 1, "the prompt is empty"),
        ("x" * 32, {}, "max_model_len", 32, 31, "the prompt has 32 tokens"),
        ([97, 256], {}, "prompt", 256, 255, "token 1 of the prompt is 256: token ids are whole numbers from 0 to 255"),
        ([-1], {}, "prompt", -1, 0, "token 0 of the prompt is -1"),
        ([1.5], {}, "prompt", 0, 0, "token 0 of the prompt is 1.5"),
        ("x", {"top_p": 1.5}, "top_p", 1, 1, "not 1.5"),
        ("x", {"max_tokens": 0}, "max_tokens", 0, 1, "at least 1, not 0"),
        ("x", SamplingParams(max_tokens=0), "max_tokens", 0, 1, "at least 1, not 0"),
        ("x", SamplingParams(temperature=math.nan), "temperature", 0, 0, "not nan"),
        ("x", {"temprature": 1}, "temprature", 0, 0, "did you mean temperature?"),
    ],
)
def test_a_refused_request_is_told_to_the_caller_and_recorded(
    prompt: Any, sampling: Any, reason: str, have: int, limit: int, message: str
) -> None:
    sink = ListSink()
    engine = scripted_engine({}, sink=sink)
    with pytest.raises(UsageError, match=message.replace("?", r"\?")) as refusal:
        engine.add_request(prompt, sampling)
    run(engine)
    assert sink.events(ev.RequestRejected) == [
        ev.RequestRejected(request_id="req-1", reason=reason, have=have, limit=limit, message=refusal.value.message)
    ]
    assert not engine.has_work


def test_an_id_is_never_used_twice_in_a_recording() -> None:
    engine = scripted_engine({"req-1": b"$", "req-2": b"$"})
    engine.add_request("x", request_id="req-1")
    run(engine)
    assert engine.add_request("x") == "req-2"
    with pytest.raises(UsageError, match="'req-1' already"):
        engine.add_request("x", request_id="req-1")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["req-1", "req-1"], "two of these requests are called 'req-1'"),
        ([None, "old"], "there was a request 'old' already"),
        (["ok", ""], "at least one character, not ''"),
        (["ok", "half a \ud83d"], "must be UTF-8 text"),
    ],
)
def test_of_requests_of_which_one_has_an_impossible_id_none_comes_in(ids: list[str | None], message: str) -> None:
    sink = ListSink()
    engine = scripted_engine({"old": b"$", "req-1": b"$", "ok": b"$"}, sink=sink)
    engine.add_request("x", request_id="old")
    run(engine)
    with pytest.raises(UsageError, match=message):
        engine.add_requests([Submission(prompt="x", request_id=request_id) for request_id in ids])
    assert (engine.has_work, engine.is_known("req-1"), engine.is_known("ok")) == (False, False, False)


def test_an_id_that_one_of_several_asks_for_is_made_up_for_none_of_the_others() -> None:
    engine = scripted_engine({"req-1": b"$", "req-2": b"$"})
    submissions = [Submission(prompt="x"), Submission(prompt="x", request_id="req-1")]
    assert engine.add_requests(submissions) == ["req-2", "req-1"]
    run(engine)


def test_a_refusal_is_recorded_under_a_name_that_can_be() -> None:
    sink = ListSink()
    engine = scripted_engine({"req-1": b"$"}, sink=sink)
    for request_id in ("a", "a", "\ud83d"):
        with pytest.raises(UsageError, match="the prompt is empty"):
            engine.add_request("", request_id=request_id)
    run(engine)
    refused = [event.request_id for event in sink.events(ev.RequestRejected) if isinstance(event, ev.RequestRejected)]
    assert refused == ["a", "req-1", "req-2"]


def test_a_time_that_is_no_number_is_refused() -> None:
    """It has no place in a queue by arrival time, and none in a recording."""
    engine = scripted_engine({})
    for arrival_time in (float("nan"), float("inf")):
        with pytest.raises(UsageError, match="arrival_time must be a number of seconds"):
            engine.add_request("x", arrival_time=arrival_time)


def test_a_request_that_comes_while_the_engine_fails_is_turned_away() -> None:
    """It was let in, and its caller never heard of it again."""

    def fail(output: SchedulerOutput) -> None:
        raise ValueError("no kernel")

    engine = scripted_engine({}, before_reply=fail)

    class FailsMeanwhile(str):
        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            if engine.failure is None:
                with pytest.raises(EngineError, match="no kernel"):
                    engine.step()
            return super().encode(encoding, errors)

    caller = Caller()
    with pytest.raises(EngineError, match="has stopped"):
        engine.add_request(FailsMeanwhile("x"), on_update=caller)
    assert caller.updates == []


def test_aborts_before_and_during_a_step_are_told_apart() -> None:
    sink = ListSink()

    def abort_second(output: SchedulerOutput) -> None:
        if output.step == 1:
            engine.abort("req-2")

    engine = scripted_engine({"req-1": b"xxxx", "req-2": b"yyyy"}, sink=sink, before_reply=abort_second)
    first, second = Caller(), Caller()
    engine.add_request("ab", on_update=first)
    engine.add_request("cd", on_update=second)
    engine.step()
    engine.step()
    engine.abort("req-1")
    engine.step()
    assert sink.events(ev.RequestAborted) == [
        ev.RequestAborted(request_id="req-2", status="RUNNING", during_execution=True),
        ev.RequestAborted(request_id="req-1", status="RUNNING"),
    ]
    assert (first.output.finish_reason, first.output.text) == ("abort", "xx")
    assert (second.output.finish_reason, second.output.text) == ("abort", "y")
    assert (engine.abort("req-1"), engine.has_work) == (False, False)


def test_an_abort_that_overtakes_its_arrival_waits_for_it() -> None:
    """Submitted and aborted while a step executes: the abort must not be dropped for an unknown id."""

    def submit_and_abort(output: SchedulerOutput) -> None:
        if output.step == 0:
            engine.add_request("cd", request_id="late")
            engine.abort("late")

    sink = ListSink()
    engine = scripted_engine({"req-1": b"xx$"}, sink=sink, before_reply=submit_and_abort)
    engine.add_request("ab")
    run(engine)
    assert sink.events(ev.RequestAborted) == [ev.RequestAborted(request_id="late", status="WAITING")]


def test_a_step_that_raises_is_recorded_and_stops_the_engine() -> None:
    sink = ListSink()

    def raise_at_step_1(output: SchedulerOutput) -> None:
        if output.step == 1:
            raise ValueError("no kernel\nsecond line")

    engine = scripted_engine({"req-1": b"xxxxxxxx"}, sink=sink, before_reply=raise_at_step_1, max_num_batched_tokens=4)
    caller = Caller()
    engine.add_request("abcdefgh", on_update=caller)
    engine.step()
    with pytest.raises(EngineError, match=r"step 1 failed in forward: ValueError: no kernel$"):
        engine.step()
    *_, uncached, failed = sink.steps[1]
    assert uncached == ev.BlockUncached(request_id="req-1", block_ids=(2,), reason="step_failed")
    assert isinstance(failed, ev.StepFailed)
    assert (failed.phase, failed.error_type, failed.message) == ("forward", "ValueError", "no kernel\nsecond line")
    assert failed.traceback.startswith("Traceback")
    assert caller.output.finish_reason == "error"
    with pytest.raises(EngineError, match="has stopped"):
        engine.step()
    with pytest.raises(EngineError, match="has stopped"):
        engine.add_request("x")
    state = EngineState()
    for step, events in enumerate(sink.steps):
        state.apply_step(step, events)
    assert (state.running, state.requests["req-1"].block_ids) == (["req-1"], [1, 2])


def test_a_recorder_that_fails_stops_the_engine() -> None:
    class FullDisk(ListSink):
        def write_step(self, step: int, events: Any) -> None:
            raise OSError("disk full")

    engine = scripted_engine({"req-1": b"x$"}, sink=FullDisk())
    caller = Caller()
    engine.add_request("ab", on_update=caller)
    with pytest.raises(EngineError, match="the recording failed, the engine stopped: OSError: disk full"):
        engine.step()
    assert engine.failure is not None
    assert caller.output.finish_reason == "error"


def test_a_queue_that_can_never_move_makes_one_empty_step_and_then_stands_still() -> None:
    sink = ListSink()
    engine = scripted_engine({}, num_gpu_blocks=3, sink=sink)
    engine.add_request("x" * 12)  # three blocks, two exist
    run(engine)
    assert engine.stuck is not None
    assert (engine.stuck.kind, engine.stuck.request_id, engine.has_work, len(sink.steps)) == (
        "deadlock",
        "req-1",
        True,
        1,
    )
    engine.abort("req-1")
    assert engine.stuck is None
    run(engine)
    assert not engine.has_work


def test_without_a_recorder_no_events_are_built_and_answers_are_the_same() -> None:
    engine = scripted_engine({"req-1": b"ok$"})
    caller = Caller()
    engine.add_request("ab", on_update=caller)
    assert engine.step().events == []
    run(engine)
    assert caller.output.text == "ok"


def test_chat_puts_the_system_prompt_and_the_prompt_through_the_template() -> None:
    engine = scripted_engine({"req-1": b"$"})
    caller = Caller()
    engine.add_request("hi", is_chat=True, system="be brief", on_update=caller)
    run(engine)
    assert bytes(caller.output.prompt_token_ids) == b"<be brief|hi>"
    assert caller.output.prompt == "hi"


def test_the_hand_off_is_timed_in_the_next_step() -> None:
    """The recorder's time cannot be in the step that it takes over."""
    times = {"now": 0}

    class SlowSink(ListSink):
        def write_step(self, step: int, events: Any) -> None:
            super().write_step(step, events)
            times["now"] += 700

    sink = SlowSink()
    engine = scripted_engine({"req-1": b"ab$"}, sink=sink, clock_ns=lambda: times["now"])
    engine.add_request("x")
    run(engine)
    finished = [event for event in sink.events(ev.StepFinished) if isinstance(event, ev.StepFinished)]
    assert [event.record_ns for event in finished] == [0, 700, 700]
