"""The block pool at a step as compact arrays for a map of up to many thousand cells, and the facts of one block."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal


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
    """Given back by a request; free, unless others hold it still."""


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


PoolOrder = Literal["id", "owner", "free_queue"]
