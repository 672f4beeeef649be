"""The block pool at a step as compact arrays for a map of up to many thousand cells, and the facts of one block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice, repeat
from operator import is_not

from kvscope import events as ev
from kvscope.analysis.memory import remembered
from kvscope.analysis.token_view import request_text
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import NULL_BLOCK, EngineState


class BlockStatus(IntEnum):
    """What a block is after the step."""

    NULL = 0
    FREE = 1
    """Free and not cached."""
    CACHED = 2
    """Free, and still hittable."""
    LIVE = 3
    """Held by one request."""
    SHARED = 4
    """Held by several."""


class BlockChange(IntEnum):
    """The last thing that happened to a block in the step."""

    NONE = 0
    NEW = 1
    """Allocated."""
    EVICTING = 2
    """Allocated, and a cached block's hash was lost for it."""
    HIT = 3
    RELEASED = 4
    """Back in the free queue. A block that others still hold only loses a reference, and is not marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """The pool after a step. The bytes are indexed by block id; block 0 is the null block."""

    step: int
    block_size: int
    status: bytes
    """`BlockStatus` of each block."""
    change: bytes
    """`BlockChange` of each block."""
    ref_cnt: bytes
    """Reference counts, 255 for more."""
    num_live: int
    """With a reference count of 1 exactly."""
    num_shared: int
    num_cached: int
    num_free: int
    """Free and not cached."""
    num_new: int
    num_evicting: int
    num_hit: int
    num_released: int

    @property
    def num_usable_blocks(self) -> int:
        """The pool without the null block."""
        return len(self.status) - 1


@dataclass(frozen=True, slots=True)
class NextOut:
    """A block near the head of the free queue."""

    block_id: int
    is_cached: bool
    """Taking it loses a cached block."""


@dataclass(frozen=True, slots=True)
class BlockHolder:
    """A request that has the block in its table at `index`."""

    request_id: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFacts:
    """What is known of one block after a step."""

    block_id: int
    status: BlockStatus
    change: BlockChange
    ref_cnt: int
    holders: tuple[BlockHolder, ...]
    origin: BlockHolder | None
    """Whose tokens it was published with, and where in that request; None where it is not published."""
    free_queue_position: int | None
    """0 is taken next; None where it is not free."""
    text: str
    """Visible text of the tokens that it holds; empty where it holds none that are known."""
    num_tokens: int
    """How many of its slots hold computed tokens of its holder or origin."""


_MAX_REF_CNT = 255
_STATUS_OF_REF_CNT = bytes(
    BlockStatus.FREE if count == 0 else BlockStatus.LIVE if count == 1 else BlockStatus.SHARED for count in range(256)
)

_IS_FREE = bytes(status == BlockStatus.FREE for status in range(256))


def pool_view(timeline: Timeline, moment: Moment) -> PoolView:
    """Returns the pool after the step. Built once a moment."""
    cache = remembered(timeline).of_moment(moment)
    view = cache.get("pool")
    if view is None:
        view = cache["pool"] = _pool_view(moment)
    assert isinstance(view, PoolView)
    return view


def _pool_view(moment: Moment) -> PoolView:
    state = moment.state
    ref_cnt = _ref_cnt_bytes(state.ref_cnts)
    status = _with_cached(ref_cnt.translate(_STATUS_OF_REF_CNT), state.cached_from.request_ids)
    if status:
        status[NULL_BLOCK] = BlockStatus.NULL
    change = _changes(moment.events, state, len(status))
    return PoolView(
        step=moment.step,
        block_size=state.config.block_size if state.config is not None else 0,
        status=bytes(status),
        change=change,
        ref_cnt=ref_cnt,
        num_live=status.count(BlockStatus.LIVE),
        num_shared=status.count(BlockStatus.SHARED),
        num_cached=status.count(BlockStatus.CACHED),
        num_free=status.count(BlockStatus.FREE),
        num_new=change.count(BlockChange.NEW),
        num_evicting=change.count(BlockChange.EVICTING),
        num_hit=change.count(BlockChange.HIT),
        num_released=change.count(BlockChange.RELEASED),
    )


def _with_cached(status: bytes, computed_by: Iterable[str | None]) -> bytearray:
    """Returns the status with `CACHED`, one more, for `FREE` where a block is published: all at once, as one number."""
    published = bytes(map(is_not, computed_by, repeat(None)))
    marks = int.from_bytes(published, "little") & int.from_bytes(status.translate(_IS_FREE), "little")
    return bytearray((int.from_bytes(status, "little") + marks).to_bytes(len(status), "little"))


def _ref_cnt_bytes(ref_cnts: Sequence[int]) -> bytes:
    try:
        return bytes(ref_cnts)
    except ValueError:
        return bytes(min(count, _MAX_REF_CNT) for count in ref_cnts)


def _changes(events: Sequence[ev.Event], state: EngineState, num_blocks: int) -> bytes:
    change = bytearray(num_blocks)
    for event in events:
        match event:
            case ev.BlockAllocated():
                for block_id in event.block_ids:
                    is_evicting = block_id in state.evicted_from
                    change[block_id] = BlockChange.EVICTING if is_evicting else BlockChange.NEW
            case ev.BlockTouched():
                for block_id in event.block_ids:
                    change[block_id] = BlockChange.HIT
            case ev.BlockReleased():
                for block_id in event.freed_to_head + event.freed_to_tail:
                    change[block_id] = BlockChange.RELEASED
            case _:
                pass
    return bytes(change)


def next_out(moment: Moment, count: int) -> list[NextOut]:
    """Returns the first blocks of the free queue, in the order in which they will be taken."""
    state = moment.state
    return [NextOut(block_id, block_id in state.cached_from) for block_id in islice(state.free_queue, count)]


def block_facts(timeline: Timeline, moment: Moment, block_id: int) -> BlockFacts | None:
    """Returns what is known of a block; None where the pool has no such block."""
    found = facts_of_blocks(timeline, moment, (block_id,))
    return found[0] if found else None


def facts_of_blocks(timeline: Timeline, moment: Moment, block_ids: Sequence[int]) -> list[BlockFacts]:
    """Returns what is known of some blocks, in their order, without those that the pool has not.

    Block tables and the free queue are gone through once for all of them.
    """
    state = moment.state
    view = pool_view(timeline, moment)
    known = [block_id for block_id in block_ids if 0 <= block_id < len(view.status)]
    holders = _holders(state, {block_id for block_id in known if view.ref_cnt[block_id]})
    positions = _free_queue_positions(state, known)
    found: list[BlockFacts] = []
    for block_id in known:
        cached = state.cached_from.get(block_id)
        origin = BlockHolder(*cached) if cached is not None else None
        held_by = tuple(holders.get(block_id, ()))
        source = origin or (held_by[0] if held_by else None)
        text, num_tokens = ("", 0) if source is None else _content(timeline, moment, source, is_full=origin is not None)
        found.append(
            BlockFacts(
                block_id=block_id,
                status=BlockStatus(view.status[block_id]),
                change=BlockChange(view.change[block_id]),
                ref_cnt=state.ref_cnts[block_id],
                holders=held_by,
                origin=origin,
                free_queue_position=positions.get(block_id),
                text=text,
                num_tokens=num_tokens,
            )
        )
    return found


def _holders(state: EngineState, block_ids: set[int]) -> dict[int, list[BlockHolder]]:
    """Returns who holds each of the blocks, and where in its table."""
    holders: dict[int, list[BlockHolder]] = {}
    for request in state.requests.values():
        for block_id in block_ids.intersection(request.block_ids):
            holder = BlockHolder(request.request_id, request.block_ids.index(block_id))
            holders.setdefault(block_id, []).append(holder)
    return holders


def _free_queue_positions(state: EngineState, block_ids: Sequence[int]) -> dict[int, int]:
    """Returns the places of those blocks that are free; the queue is read up to the last of them."""
    wanted = {block_id for block_id in block_ids if state.is_free(block_id)}
    places = ((free_id, place) for place, free_id in enumerate(state.free_queue) if free_id in wanted)
    return dict(islice(places, len(wanted)))


def _content(timeline: Timeline, moment: Moment, source: BlockHolder, *, is_full: bool) -> tuple[str, int]:
    block_size = pool_view(timeline, moment).block_size
    start = source.index * block_size
    stop = start + block_size
    num_tokens = block_size
    if not is_full:  # only a live holder's block is not published
        request = moment.state.requests[source.request_id]
        stop = min(stop, request.num_tokens)
        num_tokens = max(min(request.num_computed_tokens - start, block_size), 0)
    return request_text(timeline, source.request_id, moment.step, start, stop), num_tokens
