"""What the writer only counts while the same requests decode comes to what a fold over every request comes to."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kvscope.recording.steady_tokens import SteadyTokens
from kvscope.session.bench_load import SteadyDecode
from kvscope.state import EngineState
from tests.recording.runs import BUSY_RUNS, Steps, golden_steps


def decoding(num_steps: int) -> Steps:
    """Requests decode for long, one ends now and then."""
    load = SteadyDecode(6, num_output_tokens=40)
    return [(step, load.step()) for step in range(num_steps)]


def assert_alike(steps: Steps, *, caught_up_at: Sequence[int]) -> None:
    """What a step's row needs holds after every step, the whole state wherever it was caught up."""
    counted, plain = EngineState(), EngineState()
    tokens = SteadyTokens(counted)
    for step, events in steps:
        counted.begin_step(step)
        for event in events:
            tokens.apply(event)
        plain.apply_step(step, events)
        assert (counted.step_tokens, counted.running) == (plain.step_tokens, plain.running)
        if step in caught_up_at:
            tokens.catch_up()
            assert counted == plain
    tokens.catch_up()
    assert counted == plain


@pytest.mark.parametrize("name", BUSY_RUNS)
def test_busy_runs(name: str) -> None:
    assert_alike(golden_steps(name), caught_up_at=range(0, 1000, 3))


def test_a_long_decode_is_counted_and_caught_up_with_wherever_one_looks() -> None:
    chance = random.Random(3)
    assert_alike(decoding(300), caught_up_at=[step for step in range(300) if chance.random() < 0.1])


def test_requests_that_go_on_are_not_looked_at() -> None:
    """Step 0 is the prefill, step 1 the first of a token each; from then on nobody's figures move until one looks."""
    load = SteadyDecode(6)
    state = EngineState()
    tokens = SteadyTokens(state)
    seen: list[list[int]] = []
    for step in range(6):
        state.begin_step(step)
        for event in load.step():
            tokens.apply(event)
        seen.append([request.num_output_tokens for request in state.requests.values()])
    assert seen == [[1] * 6, *[[2] * 6] * 5]
    tokens.catch_up()
    assert [request.num_output_tokens for request in state.requests.values()] == [6] * 6
