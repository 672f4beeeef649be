"""How requests and steps end: stop tokens and lengths, aborts, stop strings, and steps that raise."""

from __future__ import annotations

from typing import Any

import pytest

from kvscope import events as ev
from kvscope.analysis.check import Checker
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunnerOutput, StepResult
from kvscope.engine.scheduling.request import Request, RequestStatus, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler
from kvscope.errors import EngineError
from tests.builders import assert_shadow, scenario

CONFIG = SchedulerConfig(num_gpu_blocks=16, block_size=4, max_num_batched_tokens=64, max_num_seqs=4, max_model_len=32)


class Driven:
    """A scheduler whose model says what the test says; events against the engine's own books after every step."""

    def __init__(self, *, is_recording: bool = True) -> None:
        self.scheduler = Scheduler(CONFIG, is_recording=is_recording)
        self.checker = Checker()
        self.last: list[ev.Event] = []

    def add(
        self, request_id: str, num_prompt_tokens: int = 4, eos: tuple[int, ...] = (), **sampling: object
    ) -> Request:
        request = Request(
            request_id,
            list(range(num_prompt_tokens)),
            SamplingParams(**sampling),  # type: ignore[arg-type]
            eos_token_ids=eos,
        )
        self.scheduler.add_request(request)
        return request

    def step(self, *token_ids: int) -> StepResult:
        """Every request that is complete samples these tokens."""
        output = self.scheduler.schedule()
        sampled = [[] if request.is_prefill_chunk else list(token_ids) for request in output.requests]
        return self.scheduler.update_from_output(output, ModelRunnerOutput(sampled_token_ids=sampled))

    def end_step(self) -> None:
        self.last = self.scheduler.take_events()
        config = ev.EngineConfigured(
            model="scripted",
            device="none",
            dtype="none",
            settings=CONFIG.as_settings(),
            num_gpu_blocks=CONFIG.num_gpu_blocks,
            block_size=CONFIG.block_size,
            watermark_blocks=0,
        )
        first: list[ev.Event] = [config] if self.scheduler.step == 0 else []
        assert self.checker.check_step(self.scheduler.step, first + self.last) == []
        assert_shadow(self.scheduler, self.checker.books.state)

    def finished(self) -> list[tuple[str, str | None]]:
        return [(event.reason, event.stop) for event in self.last if isinstance(event, ev.RequestFinished)]


@pytest.mark.parametrize(
    ("sampling", "eos", "replies", "status", "reason"),
    [
        ({"max_tokens": 2}, (), [7, 7], RequestStatus.FINISHED_LENGTH, ("length", None)),
        ({"max_tokens": 9, "stop_token_ids": (8,)}, (), [7, 8], RequestStatus.FINISHED_STOPPED, ("stop", "8")),
        ({"max_tokens": 9}, (8,), [7, 8], RequestStatus.FINISHED_STOPPED, ("stop", None)),
        # A stop token that is also the last token is a stop.
        ({"max_tokens": 2}, (8,), [7, 8], RequestStatus.FINISHED_STOPPED, ("stop", None)),
        ({"max_tokens": 3, "ignore_eos": True}, (8,), [8, 8, 8], RequestStatus.FINISHED_LENGTH, ("length", None)),
        # An end of sequence is one also where it is asked for as a stop token, unless it is ignored as the former.
        ({"max_tokens": 9, "stop_token_ids": (8,)}, (8,), [8], RequestStatus.FINISHED_STOPPED, ("stop", None)),
        (
            {"max_tokens": 9, "stop_token_ids": (8,), "ignore_eos": True},
            (8,),
            [8],
            RequestStatus.FINISHED_STOPPED,
            ("stop", "8"),
        ),
        # The sampler keeps stops away before min_tokens; one that comes all the same ends the request.
        ({"max_tokens": 9, "min_tokens": 3}, (8,), [7, 8], RequestStatus.FINISHED_STOPPED, ("stop", None)),
        # 4 + 28 = max_model_len
        ({"max_tokens": 99}, (), [7] * 28, RequestStatus.FINISHED_LENGTH, ("length", None)),
        # More than there is room for cannot be kept waiting for: the request would stand still with its blocks.
        (
            {"max_tokens": 99, "min_tokens": 99},
            (),
            [7] * 28,
            RequestStatus.FINISHED_LENGTH,
            ("length", None),
        ),
    ],
)
def test_a_request_ends_with_the_token_that_ends_it(
    sampling: dict[str, Any],
    eos: tuple[int, ...],
    replies: list[int],
    status: RequestStatus,
    reason: tuple[str, str | None],
) -> None:
    driven = Driven()
    request = driven.add("a", eos=eos, **sampling)
    for token_id in replies:
        assert request.status < RequestStatus.FINISHED_STOPPED
        result = driven.step(token_id)
        driven.end_step()
    assert (request.status, request.output_token_ids, result.finished) == (status, replies, [request])
    assert driven.finished() == [reason]
    assert request.block_ids == []


def test_a_prompt_that_is_too_long_for_the_model_ends_with_its_first_token() -> None:
    """A scenario may have one, where an engine refuses it: vLLM 0.32.0 admits it whole, with blocks for 10 tokens."""
    run = scenario(max_model_len=10, budget=32).request("long", "p" * 16, reply="xyz").run()
    assert (
        run.dump()[0]["after_schedule"]
        | {
            "block_ids": {"long": [1, 2, 3]},
            "cached_blocks": [1, 2, 3],
            "num_computed_tokens": {"long": 16},
        }
        == run.dump()[0]["after_schedule"]
    )
    assert (run.dump()[0]["sampled"], run.dump()[0]["finished"]) == ({"long": [ord("x")]}, [["long", "LENGTH"]])


def test_tokens_behind_a_stop_token_are_discarded() -> None:
    run = scenario(num_spec_tokens=3).request(
        "a", "prompt", reply="abXde", drafts=["bXd"], stop_token_ids=(ord("X"),), max_tokens=5
    )
    checked = run.run()
    (verified,) = checked.events(1, ev.DraftsVerified)
    assert (verified.num_accepted, verified.num_discarded, verified.discarded_token_ids) == (3, 2, (ord("d"), ord("e")))
    (sampled,) = checked.events(1, ev.TokensSampled)
    assert (sampled.token_ids, sampled.num_tokens) == ((ord("b"), ord("X")), (2,))


def test_a_stop_string_ends_a_request_between_update_and_the_next_step() -> None:
    driven = Driven()
    request = driven.add("a", max_tokens=9)
    driven.step(7)
    driven.scheduler.finish_request("a", stop="\n\n")
    driven.end_step()
    assert (request.status, driven.finished()) == (RequestStatus.FINISHED_STOPPED, [("stop", "\n\n")])
    assert driven.scheduler.schedule().finished_request_ids == ["a"]


def test_output_of_a_request_that_was_aborted_during_execution_is_ignored() -> None:
    driven = Driven()
    a, b = driven.add("a", max_tokens=9), driven.add("b", max_tokens=9)
    output = driven.scheduler.schedule()
    assert driven.scheduler.abort("a", during_execution=True)
    result = driven.scheduler.update_from_output(output, ModelRunnerOutput(sampled_token_ids=[[7], [8]]))
    driven.end_step()
    assert (result.requests, result.new_token_ids) == ([b], [[8]])
    assert (a.status, a.output_token_ids) == (RequestStatus.FINISHED_ABORTED, [])
    assert not driven.scheduler.abort("a")


def test_a_step_that_raised_leaves_nothing_published_that_was_not_computed() -> None:
    driven = Driven()
    driven.add("a", num_prompt_tokens=9, max_tokens=9)
    driven.step(7)
    driven.end_step()
    driven.add("b", num_prompt_tokens=10, max_tokens=9)
    driven.scheduler.schedule()
    driven.scheduler.fail_step()
    driven.scheduler.step_events.append(ev.StepFailed(phase="forward", error_type="RuntimeError", message="no memory"))
    driven.end_step()
    assert [event for event in driven.last if isinstance(event, ev.BlockUncached)] == []
    assert sorted(driven.checker.books.state.cached_from) == [1, 2]
    with pytest.raises(EngineError, match="a step failed"):
        driven.scheduler.schedule()


def test_a_failed_prefill_is_unpublished() -> None:
    driven = Driven()
    driven.add("a", num_prompt_tokens=9, max_tokens=9)
    driven.scheduler.schedule()
    driven.scheduler.fail_step()
    driven.scheduler.step_events.append(ev.StepFailed(phase="forward", error_type="RuntimeError", message="no memory"))
    driven.end_step()
    (uncached,) = (event for event in driven.last if isinstance(event, ev.BlockUncached))
    assert (uncached.request_id, uncached.block_ids, uncached.reason) == ("a", (1, 2), "step_failed")
    assert driven.scheduler.kv_cache_manager.pool.cached_blocks == {}


def test_without_a_recorder_the_same_is_decided_and_no_event_is_built() -> None:
    silent, recorded = Driven(is_recording=False), Driven()
    for driven in (silent, recorded):
        driven.add("a", num_prompt_tokens=9, max_tokens=6)
        driven.add("b", num_prompt_tokens=9, max_tokens=6)
        for _ in range(5):
            driven.step(7)
    assert silent.scheduler.take_events() == []
    assert [request.block_ids for request in silent.scheduler.running] == [
        request.block_ids for request in recorded.scheduler.running
    ]
