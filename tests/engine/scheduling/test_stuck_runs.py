"""Runs that can make no more progress say so, and whom to blame."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kvscope.engine.scheduling.progress import Stuck
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.engine.scheduling.scripted_run import Outcome
from tests.builders import CheckedRun, scenario
from tests.golden import golden_runs


def run_without_cancels(name: str) -> Outcome:
    golden: dict[str, Any] = copy.deepcopy(golden_runs("scenarios")[name])
    for request in golden["workload"]["requests"]:
        request.pop("cancel_step", None)
    return CheckedRun(parse_scenario(golden)).run()


def test_a_prompt_that_preempts_itself_and_then_never_fits_is_a_deadlock() -> None:
    stuck = run_without_cancels("s28_longer_than_pool_deadlock").stuck
    assert stuck == Stuck(
        kind="deadlock",
        step=6,
        request_id="huge",
        reason="its 50 tokens fill 13 blocks of 4, the pool has 9; admission takes 11 free blocks, 7 of them for its "
        "own hits, 9 are free, and nothing runs that could free more",
    )


def test_a_prompt_that_preempts_itself_again_and_again_is_a_livelock() -> None:
    stuck = run_without_cancels("s28b_longer_than_pool_livelock").stuck
    assert stuck == Stuck(
        kind="livelock",
        step=10,
        request_id="huge",
        reason="it is preempted again and again before it samples a token: its 50 tokens fill 13 blocks of 4, the pool "
        "has 9; so far 2 times",
    )


def test_a_prompt_longer_than_the_pool_is_never_admitted() -> None:
    stuck = run_without_cancels("s27_longer_than_pool_reserved").stuck
    assert stuck == Stuck(
        kind="deadlock",
        step=4,
        request_id="huge",
        reason="its 50 tokens fill 13 blocks of 4, the pool has 9; admission takes 13 free blocks, 9 are free, and "
        "nothing runs that could free more",
    )


def test_a_run_is_not_stuck_while_an_arrival_or_a_cancel_is_to_come() -> None:
    built = scenario(blocks=5).request("big", "b" * 17, cancel_step=30).request("small", "s", at=40)
    outcome = built.run()
    assert (outcome.stuck, outcome.next_step) == (None, 41)


def test_the_cancel_of_a_request_that_has_ended_is_nothing_to_wait_for() -> None:
    run = scenario(blocks=5).request("done", "d", cancel_step=300).request("big", "b" * 17, at=1).run()
    assert run.stuck is not None
    assert (run.stuck.step, run.stuck.request_id) == (1, "big")


@pytest.mark.parametrize(("num_tokens", "budget", "num_computed"), [(8, 4, 7), (9, 4, 7), (9, 8, 8)])
def test_a_prompt_as_long_as_the_model_allows_never_samples(num_tokens: int, budget: int, num_computed: int) -> None:
    """Of 8 tokens the last lacks one position, as a decode would; its block has room for it. 8 at once leave none."""
    run = scenario(max_model_len=8, budget=budget, seqs=4, block_size=16).request("long", "l" * num_tokens).run()
    assert run.stuck is not None
    assert (run.stuck.kind, run.stuck.reason) == (
        "deadlock",
        f"it runs with {num_computed} of its {num_tokens} tokens computed, "
        "and max_model_len 8 has no place left for a sampled token",
    )


def test_the_step_limit_is_not_a_verdict() -> None:
    outcome = scenario().request("a", "a", reply="123456").start().run(3)
    assert (outcome.num_steps, outcome.stuck, outcome.hit_max_steps) == (3, None, True)
