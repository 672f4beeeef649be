"""The orders in which a map may list the blocks of a pool: by id, by owner, as the free queue stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count
from typing import Literal

from kvscope.analysis.memory import remembered
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import NULL_BLOCK, EngineState

PoolOrder = Literal["id", "owner", "free_queue"]

POOL_ORDERS: tuple[PoolOrder, ...] = ("id", "owner", "free_queue")

GroupKind = Literal["all", "request", "cached", "free", "queue", "held"]
"""`queue` is the whole free queue, `free` its blocks without a hash, `cached` those that can still be hit."""


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Blocks that belong together, in their order."""

    kind: GroupKind
    block_ids: list[int]
    request_id: str | None = None
    """Whose they are, of `request`."""


def block_groups(timeline: Timeline, moment: Moment, order: PoolOrder) -> list[BlockGroup]:
    """Returns every block of the pool in exactly one group; the null block only by id. Built once a moment.

    By owner: each request's table in the order of the queues, a shared block with the first who holds it; then the
    cached blocks by who computed them, then the free ones in the order of the free queue.
    """
    cache = remembered(timeline).of_moment(moment)
    groups: list[BlockGroup] | None = cache.get(("order", order))
    if groups is None:
        groups = cache["order", order] = [group for group in _groups(moment.state, order) if group.block_ids]
    return groups


def _groups(state: EngineState, order: PoolOrder) -> Iterable[BlockGroup]:
    match order:
        case "id":
            return [BlockGroup("all", list(range(len(state.ref_cnts))))]
        case "free_queue":
            held = [block_id for block_id, ref_cnt in enumerate(state.ref_cnts) if ref_cnt and block_id != NULL_BLOCK]
            return [BlockGroup("queue", list(state.free_queue)), BlockGroup("held", held)]
        case "owner":
            computed_by = state.cached_from.request_ids
            free = [block_id for block_id in state.free_queue if computed_by[block_id] is None]
            return [*_tables(state), BlockGroup("cached", _cached(state)), BlockGroup("free", free)]


def _tables(state: EngineState) -> list[BlockGroup]:
    groups: list[BlockGroup] = []
    listed: set[int] = set()
    for request_id in chain(state.running, state.waiting):
        table = state.requests[request_id].block_ids
        if not table:
            continue
        own = [block_id for block_id in table if block_id not in listed]
        listed.update(own)
        groups.append(BlockGroup("request", own, request_id))
    return groups


def _cached(state: EngineState) -> list[int]:
    """Returns the free blocks that can be hit, by who computed them, its index, its id. Sorted owner by owner and as
    numbers: much quicker than all at once."""
    by_owner: dict[str, list[int]] = {}
    num_blocks, origins = len(state.ref_cnts), state.cached_from
    columns = zip(count(), origins.request_ids, origins.indexes, state.ref_cnts, strict=False)
    for block_id, owner, index, ref_cnt in columns:
        if owner is not None and not ref_cnt:
            if owner in by_owner:
                by_owner[owner].append(index * num_blocks + block_id)
            else:
                by_owner[owner] = [index * num_blocks + block_id]
    return [number % num_blocks for owner in sorted(by_owner) for number in sorted(by_owner[owner])]
