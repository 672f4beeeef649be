"""A live request's block table at a step, row by row, and who holds the same blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvscope import events as ev
from kvscope.analysis.history import request_history
from kvscope.analysis.pool_view import BlockChange, pool_view
from kvscope.analysis.token_view import request_text
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import RequestState


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRow:
    """One row of a block table."""

    index: int
    block_id: int
    change: BlockChange
    """What the request's step did with it."""
    ref_cnt: int
    is_published: bool
    is_hit: bool
    """Taken over from the cache at the last admission: the rows before `hit ends`."""
    origin_id: str | None
    """The request that computed it, where it is published."""
    since_step: int | None
    """When this request got it; None where that is not known cheaply."""
    text: str
    num_tokens: int
    """How many of its slots are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTableView:
    """Rows of a block table that were asked for; `num_blocks` says how long the whole is."""

    num_blocks: int
    num_hit_blocks: int
    rows: tuple[BlockRow, ...]


@dataclass(frozen=True, slots=True)
class Sharer:
    """Another request that holds the same blocks now."""

    request_id: str
    num_blocks: int
    num_tokens: int


def block_table(timeline: Timeline, moment: Moment, request_id: str, indexes: Iterable[int]) -> BlockTableView:
    """Returns the rows of a live request's block table that are asked for; those outside the table are left out."""
    state = moment.state
    request = state.requests.get(request_id)
    if request is None or state.config is None:
        return BlockTableView(num_blocks=0, num_hit_blocks=0, rows=())
    block_size = state.config.block_size
    num_hit_blocks = request.num_hit_tokens // block_size if request.block_ids else 0
    change = pool_view(timeline, moment).change
    since = _since_steps(timeline, moment, request)
    rows: list[BlockRow] = []
    for index in indexes:
        if not 0 <= index < len(request.block_ids):
            continue
        block_id = request.block_ids[index]
        origin = state.cached_from.get(block_id)
        start = index * block_size
        stop = min(start + block_size, request.num_tokens)
        rows.append(
            BlockRow(
                index=index,
                block_id=block_id,
                change=BlockChange(change[block_id]),
                ref_cnt=state.ref_cnts[block_id],
                is_published=origin is not None,
                is_hit=index < num_hit_blocks,
                origin_id=origin[0] if origin is not None else None,
                since_step=since[index] if index < len(since) else None,
                text=request_text(timeline, request_id, moment.step, start, stop) if start < stop else "",
                num_tokens=max(min(request.num_computed_tokens - start, block_size), 0),
            )
        )
    return BlockTableView(num_blocks=len(request.block_ids), num_hit_blocks=num_hit_blocks, rows=tuple(rows))


def _since_steps(timeline: Timeline, moment: Moment, request: RequestState) -> list[int]:
    """Returns for each index of the table the step in which the request got that block."""
    history = request_history(timeline, request.request_id, moment.step)
    if history is None or request.admitted_step is None:
        return []
    steps: list[int] = []
    for step, event in history.until(moment.step):
        if isinstance(event, ev.BlockTouched | ev.BlockAllocated) and step >= request.admitted_step:
            steps += [step] * len(event.block_ids)
    return steps


def sharers(moment: Moment, request_id: str) -> list[Sharer]:
    """Returns who else holds the request's blocks now, most first. What is shared is always the head of both tables."""
    state = moment.state
    request = state.requests.get(request_id)
    if request is None or not request.block_ids or state.config is None:
        return []
    found: list[Sharer] = []
    for other_id in state.running + state.waiting:
        table = state.requests[other_id].block_ids
        if other_id == request_id or not table or table[0] != request.block_ids[0]:
            continue
        num_blocks = 0
        for ours, theirs in zip(request.block_ids, table, strict=False):
            if ours != theirs:
                break
            num_blocks += 1
        found.append(Sharer(other_id, num_blocks, num_blocks * state.config.block_size))
    return sorted(found, key=lambda sharer: -sharer.num_blocks)
