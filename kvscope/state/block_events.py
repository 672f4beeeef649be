"""What the events about blocks do to the books; whatever is raised, `EngineState.apply` makes a `StateError` of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvscope import events as ev
from kvscope.state.block_origins import Origin

if TYPE_CHECKING:
    from kvscope.state.engine_state import EngineState

NULL_BLOCK = 0


def block_allocated(state: EngineState, event: ev.BlockAllocated) -> None:
    ref_cnts, computed_by = state.ref_cnts, state.cached_from.request_ids
    heads = state.free_queue.take(len(event.block_ids))
    for block_id, head in zip(event.block_ids, heads, strict=True):
        if head != block_id or computed_by[block_id] is not None:
            raise ValueError(
                f"block {block_id} is taken, but the head of the free queue is {head}, or it is still cached"
            )
        ref_cnts[block_id] = 1
    request = state.requests[event.request_id]
    request.block_ids = [*request.block_ids, *event.block_ids]


def block_touched(state: EngineState, event: ev.BlockTouched) -> None:
    ref_cnts, computed_by = state.ref_cnts, state.cached_from.request_ids
    for block_id, ref_cnt in zip(event.block_ids, event.ref_cnts, strict=True):
        if block_id <= NULL_BLOCK or ref_cnts[block_id] != ref_cnt - 1:
            raise ValueError(f"block {block_id} has ref_cnt {ref_cnts[block_id]}, not {ref_cnt - 1}")
        if ref_cnt == 1:
            if block_id in state.lost_blocks:
                raise ValueError(f"block {block_id} is hit, but stands neither in a table nor in the free queue")
            state.free_queue.remove(block_id)
            if computed_by[block_id] is not None:
                state.num_cached_free_blocks -= 1
        elif ref_cnt == 2:
            state.num_shared_blocks += 1
        ref_cnts[block_id] = ref_cnt
    request = state.requests[event.request_id]
    request.block_ids = [*request.block_ids, *event.block_ids]
    request.num_cached_blocks = len(request.block_ids)


def block_released(state: EngineState, event: ev.BlockReleased) -> None:
    ref_cnts, computed_by = state.ref_cnts, state.cached_from.request_ids
    request = state.requests[event.request_id]
    freed = event.freed_to_head + event.freed_to_tail
    released = len(freed) + len(event.still_held)
    if released != len(request.block_ids):
        raise ValueError(f"{event.request_id} holds {len(request.block_ids)} blocks, not {released}")
    for block_id in freed:
        if block_id <= NULL_BLOCK or ref_cnts[block_id] != 1:
            raise ValueError(f"block {block_id} is freed with ref_cnt {ref_cnts[block_id]}")
        ref_cnts[block_id] = 0
        if computed_by[block_id] is not None:
            state.num_cached_free_blocks += 1
    state.free_queue.append(event.freed_to_tail)
    state.free_queue.put_first(event.freed_to_head)
    for block_id in event.still_held:
        ref_cnts[block_id] -= 1
        if ref_cnts[block_id] == 1:
            state.num_shared_blocks -= 1
        elif ref_cnts[block_id] < 0:
            raise ValueError(f"block {block_id} is given up that nobody holds")
        elif not ref_cnts[block_id]:
            state.lost_blocks.add(block_id)
    request.block_ids = []
    request.num_cached_blocks = 0


def block_cached(state: EngineState, event: ev.BlockCached) -> None:
    request, block_ids, block_hashes = state.requests[event.request_id], event.block_ids, state.block_hashes
    end = event.first_index + len(block_ids)
    if (*request.block_ids[event.first_index : end],) != block_ids:
        raise ValueError(f"{block_ids} are not blocks {event.first_index}… of {event.request_id}")
    state.cached_from.put(block_ids, event.request_id, event.first_index)
    for block_id, block_hash in zip(block_ids, event.block_hashes, strict=True):
        block_hashes[block_id] = block_hash
    for block_id, first_id in zip(block_ids, event.duplicate_of, strict=False):
        if first_id != NULL_BLOCK:
            group = state.duplicate_groups.setdefault(first_id, {first_id: None})
            group[block_id] = None
            state.duplicate_groups[block_id] = group
    request.num_cached_blocks = end


def forget_hashes(state: EngineState, block_ids: tuple[int, ...], forgotten: dict[int, Origin]) -> None:
    """Enters into `forgotten` what `cached_from` said of the blocks."""
    ref_cnts, groups = state.ref_cnts, state.duplicate_groups
    cached_from, block_hashes = state.cached_from, state.block_hashes
    for block_id in block_ids:
        forgotten[block_id] = cached_from.pop(block_id)
        block_hashes.pop(block_id, None)
        if not ref_cnts[block_id]:
            state.num_cached_free_blocks -= 1
        if block_id in groups:
            del groups.pop(block_id)[block_id]


def recount_cached(state: EngineState, request_id: str) -> None:
    """Un-published blocks are the last published ones of a table: the count stops before the first of them."""
    request = state.requests.get(request_id)
    if request is not None:
        count = 0
        while count < len(request.block_ids) and request.block_ids[count] in state.cached_from:
            count += 1
        request.num_cached_blocks = count
