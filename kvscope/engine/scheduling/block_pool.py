"""The physical blocks: which are free and in what order they are taken, who holds how many references, what is cached.

Rules of vLLM 0.32.0's BlockPool with one full-attention group. Knows block ids and hashes, no requests' tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

NULL_BLOCK = 0
"""Never handed out."""


class TakenBlocks(NamedTuple):
    """Blocks taken from the head of the free queue, and which of them lost a hash by it."""

    block_ids: list[int]
    evicted_block_ids: list[int]
    evicted_hashes: list[bytes]


class ReleasedBlocks(NamedTuple):
    """Where the blocks of a block table went when it was given back; orders as in the free queue."""

    freed_to_head: tuple[int, ...]
    freed_to_tail: tuple[int, ...]
    still_held: tuple[int, ...]


class BlockPool:
    """All blocks of the KV cache.

    A block is in the free queue if and only if nobody holds it (the null block excepted). A free block may keep its
    hash: it can then be hit, or taken, which evicts the hash.
    """

    __slots__ = ("block_hashes", "cached_blocks", "computed_by", "free_queue", "ref_cnts")

    def __init__(self, num_gpu_blocks: int) -> None:
        self.ref_cnts = [0] * num_gpu_blocks
        self.free_queue: OrderedDict[int, None] = OrderedDict.fromkeys(range(NULL_BLOCK + 1, num_gpu_blocks))
        """Head first: the next to be taken."""
        self.block_hashes: dict[int, bytes] = {}
        """The published blocks' hashes."""
        self.cached_blocks: dict[bytes, int | dict[int, None]] = {}
        """The blocks of each hash: one, or several in the order in which they were published."""
        self.computed_by: list[str | None] = [None] * num_gpu_blocks
        """By block id, the request that published it; None where it is not cached."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, cached ones included."""
        return len(self.free_queue)

    def get_cached_block(self, block_hash: bytes) -> int | None:
        """Returns the block that was published first under this hash, of those that are still cached."""
        entry = self.cached_blocks.get(block_hash)
        return next(iter(entry)) if isinstance(entry, dict) else entry

    def find_longest_hit(self, block_hashes: Iterable[bytes]) -> list[int]:
        """Returns the cached blocks of the longest run of hashes from the first on. Has no side effect."""
        hit: list[int] = []
        for block_hash in block_hashes:
            block_id = self.get_cached_block(block_hash)
            if block_id is None:
                break
            hit.append(block_id)
        return hit

    def count_free(self, block_ids: Iterable[int]) -> int:
        """Returns how many of the blocks lie in the free queue."""
        ref_cnts = self.ref_cnts
        return sum(not ref_cnts[block_id] for block_id in block_ids)

    def touch(self, block_ids: Iterable[int]) -> None:
        """Adds a reference to each block; free ones leave the free queue."""
        for block_id in block_ids:
            if self.ref_cnts[block_id] == 0:
                del self.free_queue[block_id]
            self.ref_cnts[block_id] += 1

    def take(self, num_blocks: int) -> TakenBlocks:
        """Takes blocks from the head of the free queue; a hash that one still had is evicted. There must be enough."""
        pop = self.free_queue.popitem
        block_ids = [pop(last=False)[0] for _ in range(num_blocks)]
        for block_id in block_ids:
            self.ref_cnts[block_id] = 1
        evicted_block_ids = [block_id for block_id in block_ids if block_id in self.block_hashes]
        return TakenBlocks(block_ids, evicted_block_ids, self.uncache(evicted_block_ids))

    def release(self, block_table: Sequence[int]) -> ReleasedBlocks:
        """Drops one reference of each block, the last first.

        Blocks that nobody holds any more are freed: those without a hash to the head of the free queue, as nothing is
        lost when they are taken, the others to the tail. Both keep the backward order, so that a prefix outlives its
        end.
        """
        head: list[int] = []
        tail: list[int] = []
        held: list[int] = []
        ref_cnts, block_hashes, free_queue = self.ref_cnts, self.block_hashes, self.free_queue
        for block_id in reversed(block_table):
            ref_cnts[block_id] -= 1
            if ref_cnts[block_id]:
                held.append(block_id)
            elif block_id in block_hashes:
                tail.append(block_id)
                free_queue[block_id] = None
            else:
                head.append(block_id)
        for block_id in reversed(head):
            free_queue[block_id] = None
            free_queue.move_to_end(block_id, last=False)
        return ReleasedBlocks(tuple(head), tuple(tail), tuple(held))

    def cache(self, block_ids: Sequence[int], block_hashes: Sequence[bytes], request_id: str) -> list[int]:
        """Publishes blocks that `request_id` computes.

        Returns for each the first block that already has this hash, the null block where none has. Duplicates are kept,
        not merged: block tables only ever grow.
        """
        self.block_hashes.update(zip(block_ids, block_hashes, strict=True))
        computed_by = self.computed_by
        first_of = self.cached_blocks.setdefault
        firsts = []
        for block_id, block_hash in zip(block_ids, block_hashes, strict=True):
            computed_by[block_id] = request_id
            entry = first_of(block_hash, block_id)
            firsts.append(NULL_BLOCK if entry == block_id else self._add_duplicate(block_id, block_hash))
        return firsts

    def _add_duplicate(self, block_id: int, block_hash: bytes) -> int:
        """Adds a block to those of its hash and returns the first of them."""
        entry = self.cached_blocks[block_hash]
        if not isinstance(entry, dict):
            entry = self.cached_blocks[block_hash] = {entry: None}
        entry[block_id] = None
        return next(iter(entry))

    def uncache(self, block_ids: Sequence[int]) -> list[bytes]:
        """Takes back the blocks' publication and returns the hashes they had."""
        cached_blocks, computed_by = self.cached_blocks, self.computed_by
        block_hashes = [self.block_hashes.pop(block_id) for block_id in block_ids]
        for block_id, block_hash in zip(block_ids, block_hashes, strict=True):
            computed_by[block_id] = None
            entry = cached_blocks.pop(block_hash)
            if isinstance(entry, dict):
                del entry[block_id]
                if entry:
                    cached_blocks[block_hash] = entry
        return block_hashes
