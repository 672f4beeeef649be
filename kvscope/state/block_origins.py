"""Which blocks are published, and who computed each of them: two columns by block id, cheap to copy."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, count, repeat
from operator import is_not

Origin = tuple[str, int]
"""The request that computed a block, and the block's index in that request's table."""


class BlockOrigins:
    """Reads like a mapping from each published block to its `Origin`, in the order of block ids."""

    __slots__ = ("_num_published", "indexes", "request_ids")

    def __init__(self, request_ids: list[str | None] | None = None, indexes: Sequence[int] = ()) -> None:
        """Takes the columns over; they are as long as the pool. Raises `OverflowError` for an index beyond 32 bits."""
        self.request_ids = [] if request_ids is None else request_ids
        """By block id: the request that computed it, None where it is not published. To be read."""
        self.indexes = array("i", indexes)
        """By block id: its index in that request's table, 0 where it is not published. To be read.

        An array: to copy a list of numbers is to touch each of them, wherever it lies."""
        self._num_published = len(self.request_ids) - self.request_ids.count(None)

    @classmethod
    def of_pool(cls, num_blocks: int, origins: Mapping[int, Origin] | None = None) -> BlockOrigins:
        """Returns those of a pool of so many blocks."""
        new = cls([None] * num_blocks, [0] * num_blocks)
        for block_id, (request_id, index) in (origins or {}).items():
            new.put((block_id,), request_id, index)
        return new

    def __len__(self) -> int:
        return self._num_published

    def __contains__(self, block_id: int) -> bool:
        return 0 <= block_id < len(self.request_ids) and self.request_ids[block_id] is not None

    def __iter__(self) -> Iterator[int]:
        return compress(count(), map(is_not, self.request_ids, repeat(None)))

    def __getitem__(self, block_id: int) -> Origin:
        """Returns the origin of a block. Raises `KeyError` where it is not published."""
        origin = self.get(block_id)
        if origin is None:
            raise KeyError(block_id)
        return origin

    def get(self, block_id: int) -> Origin | None:
        """Returns the origin of a block, None where it is not published."""
        if not 0 <= block_id < len(self.request_ids):
            return None
        request_id = self.request_ids[block_id]
        return None if request_id is None else (request_id, self.indexes[block_id])

    def items(self) -> Iterator[tuple[int, Origin]]:
        """Yields each published block with its origin."""
        for block_id, (request_id, index) in enumerate(zip(self.request_ids, self.indexes, strict=True)):
            if request_id is not None:
                yield block_id, (request_id, index)

    def put(self, block_ids: Sequence[int], request_id: str, first_index: int) -> None:
        """Enters blocks that stand one behind another in a table."""
        request_ids, indexes = self.request_ids, self.indexes
        for index, block_id in enumerate(block_ids, first_index):
            if request_ids[block_id] is None:
                self._num_published += 1
            request_ids[block_id] = request_id
            indexes[block_id] = index

    def pop(self, block_id: int) -> Origin:
        """Forgets a block and returns its origin. Raises `KeyError` where it is not published."""
        request_ids, indexes = self.request_ids, self.indexes
        request_id = request_ids[block_id] if 0 <= block_id < len(request_ids) else None
        if request_id is None:
            raise KeyError(block_id)
        index = indexes[block_id]
        request_ids[block_id], indexes[block_id] = None, 0
        self._num_published -= 1
        return request_id, index

    def copy(self) -> BlockOrigins:
        """Returns a copy that shares nothing with this one."""
        copy = BlockOrigins()
        copy.request_ids, copy.indexes = self.request_ids.copy(), self.indexes[:]
        copy._num_published = self._num_published
        return copy

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BlockOrigins) and self.request_ids == other.request_ids and self.indexes == other.indexes
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"BlockOrigins({dict(self.items())})"
