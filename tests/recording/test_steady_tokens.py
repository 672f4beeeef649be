"""What the writer only counts while the same requests decode comes to what a fold over every request comes to."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvscope import events as ev
from kvscope.recording.steady_tokens import SteadyTokens
from kvscope.session.bench_load import SteadyDecode
from kvscope.state import EngineState
from tests.recording.runs import BUSY_RUNS, Steps, golden_steps, record


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


def tokens_of(a: int, b: int, sampled: str = "ab") -> list[ev.Event]:
    """A step that gives two requests so many tokens, and in which those named sample one."""
    return [
        ev.TokensScheduled(request_ids=("a", "b"), num_tokens=(a, b)),
        ev.TokensSampled(request_ids=tuple(sampled), token_ids=(7,) * len(sampled)),
    ]


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param([tokens_of(1, 1)] * 5, id="tokens are sampled in the middle of a prefill"),
        pytest.param([tokens_of(3, 3), *[tokens_of(1, 1)] * 3, tokens_of(1, 2), tokens_of(1, 1)], id="two for one"),
        pytest.param(
            [tokens_of(3, 3), *[tokens_of(1, 1)] * 3, tokens_of(1, 1, "b"), tokens_of(1, 1)], id="none for one"
        ),
    ],
)
def test_steps_that_only_look_alike_are_folded(odd: list[list[ev.Event]]) -> None:
    """A debugger must show a faulty engine's figures, not what a sound one would have."""
    first: list[ev.Event] = [
        ev.EngineConfigured(
            model="m", device="d", dtype="t", settings={}, num_gpu_blocks=9, block_size=16, watermark_blocks=0
        )
    ]
    for position, name in enumerate("ab"):
        first.append(
            ev.RequestArrived(
                request_id=name, prompt_token_ids=(5,) * 3, max_tokens=9, arrival_time=0, queue_position=position
            )
        )
    first += [
        ev.RequestAdmitted(request_id=name, num_tokens=3, num_hit_tokens=0, num_scheduled_tokens=3) for name in "ab"
    ]
    assert_alike([(0, first), *enumerate(odd, 1)], caught_up_at=[])


def test_a_recording_that_ends_in_a_decode_tells_how_far_it_came(tmp_path: Path) -> None:
    load = SteadyDecode(6)
    path = record(tmp_path / "run.db", [(step, load.step()) for step in range(6)])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT num_output_tokens FROM requests").fetchall() == [(6,)] * 6
