"""The orders in which a list of the queues may stand: as the scheduler has them, or by what one looks for in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from kvscope import events as ev
from kvscope.replay.timeline import Moment
from kvscope.state import EngineState, RequestState

QueueOrder = Literal["queue", "blocks", "computed", "step", "left", "age", "preempted", "id"]

QUEUE_ORDERS: tuple[QueueOrder, ...] = ("queue", "blocks", "computed", "step", "left", "age", "preempted", "id")

ORDER_WORDS: dict[QueueOrder, str] = {
    "queue": "",
    "blocks": "running by blocks held",
    "computed": "running by tokens so far",
    "step": "running by tokens now",
    "left": "by tokens left",
    "age": "by age",
    "preempted": "by preemptions",
    "id": "by id",
}


OF_RUNNING = frozenset({"blocks", "computed", "step"})
"""Orders by what only running requests have: the waiting queue stays as it is."""


def queue_places(moment: Moment, order: QueueOrder) -> tuple[Sequence[int], Sequence[int]]:
    """Returns the places of the waiting and of the running queue in the order of a list.

    Most blocks, tokens or preemptions first, but fewest tokens left (who ends next), and who waits longest or came
    first. Equal ones stand as in their queue; so do those of whom an order says nothing: who waits holds no blocks.
    """
    state = moment.state
    if order == "queue":
        return range(len(state.waiting)), range(len(state.running))
    key = _key(moment, order)
    waiting = range(len(state.waiting)) if order in OF_RUNNING else _sorted(state, state.waiting, key)
    return waiting, _sorted(state, state.running, key)


def _sorted(state: EngineState, queue: Sequence[str], key: Callable[[RequestState], Any]) -> list[int]:
    keys = [key(state.requests[request_id]) for request_id in queue]
    return sorted(range(len(queue)), key=keys.__getitem__)


def _key(moment: Moment, order: QueueOrder) -> Callable[[RequestState], Any]:
    match order:
        case "blocks":
            return lambda request: -len(request.block_ids)
        case "computed":
            return lambda request: -request.num_computed_tokens
        case "step":
            shares = _shares(moment)
            return lambda request: -shares.get(request.request_id, 0)
        case "left":
            return lambda request: request.num_prompt_tokens + request.max_tokens - request.num_tokens
        case "age":
            return _age
        case "preempted":
            return lambda request: -request.num_preemptions
        case "id":
            return lambda request: _natural(request.request_id)
        case "queue":
            return lambda request: 0


def _age(request: RequestState) -> int:
    """Since when it waits, or since its arrival where it runs: what its row says."""
    return request.arrival_step if request.status == "RUNNING" else request.waiting_since_step


def _shares(moment: Moment) -> dict[str, int]:
    for event in moment.events:
        if isinstance(event, ev.TokensScheduled):
            return dict(zip(event.request_ids, event.num_tokens, strict=True))
    return {}


def _natural(request_id: str) -> list[tuple[int, int, str]]:
    """Returns a key by which `req-9` comes before `req-10`."""
    parts = re.split(r"([0-9]{1,18})", request_id)
    return [(0, int(part), "") if index % 2 else (1, 0, part) for index, part in enumerate(parts)]
