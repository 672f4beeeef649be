"""In which order a list of the queues stands, by whole lists of places."""

from __future__ import annotations

from typing import Any

import pytest

from kvscope.analysis.queue_order import QueueOrder, queue_places
from kvscope.events import TokensScheduled
from kvscope.replay.timeline import Moment
from kvscope.state import EngineState, RequestState, RequestStatus


def request(request_id: str, status: RequestStatus, **fields: Any) -> RequestState:
    blocks = list(range(fields.pop("num_blocks", 0)))
    fields = {"arrival_step": 0, "num_prompt_tokens": 10, "max_tokens": 10, "num_tokens": 10} | fields
    return RequestState(request_id=request_id, status=status, block_ids=blocks, **fields)


def moment() -> Moment:
    """r-10 came first, holds 4 blocks, has 9 tokens left; r-9 came last; c waits since step 7, a again since 9."""
    requests = [
        request("r-10", "RUNNING", arrival_step=1, num_tokens=11, num_computed_tokens=11, num_blocks=4),
        request("r-9", "RUNNING", arrival_step=5, num_tokens=19, num_computed_tokens=18, num_blocks=2),
        request("R", "RUNNING", arrival_step=3, num_tokens=15, num_computed_tokens=15, num_preemptions=1),
        request("c", "WAITING", arrival_step=7, waiting_since_step=7),
        request("a", "PREEMPTED", arrival_step=2, waiting_since_step=9, num_tokens=12, num_preemptions=2),
        request("b", "WAITING", arrival_step=8, waiting_since_step=8),
    ]
    state = EngineState(
        requests={each.request_id: each for each in requests}, waiting=["c", "a", "b"], running=["r-10", "r-9", "R"]
    )
    scheduled = TokensScheduled(request_ids=("R", "r-9"), num_tokens=(3, 1))
    return Moment(9, state, (scheduled,))


@pytest.mark.parametrize(
    ("order", "waiting", "running"),
    [
        ("queue", [0, 1, 2], [0, 1, 2]),
        ("blocks", [0, 1, 2], [0, 1, 2]),
        ("computed", [0, 1, 2], [1, 2, 0]),
        ("step", [0, 1, 2], [2, 1, 0]),
        ("left", [1, 0, 2], [1, 2, 0]),
        ("age", [0, 2, 1], [0, 2, 1]),
        ("preempted", [1, 0, 2], [2, 0, 1]),
        ("id", [1, 2, 0], [2, 1, 0]),
    ],
)
def test_each_order(order: QueueOrder, waiting: list[int], running: list[int]) -> None:
    found = queue_places(moment(), order)
    assert [list(places) for places in found] == [waiting, running]


def test_ids_with_numbers_of_any_length_and_script_can_be_sorted() -> None:
    ids = ["٣", "9" * 5000, "x²", "x10", "x9", ""]
    state = EngineState(requests={name: request(name, "RUNNING") for name in ids}, running=ids)
    places = queue_places(Moment(0, state, ()), "id")[1]
    assert [ids[place] for place in places] == ["", "9" * 5000, "x9", "x10", "x²", "٣"]
