"""The free queue of a pool: quick at both ends, quick to copy, and a block in its middle can be taken out.

Reference counts say which blocks are free; here is only their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

_FEW_REMOVED = 64


class FreeQueue:
    """Block ids, the one that is taken next first.

    A block that is taken out of the middle stays where it stands, and is passed over later: it is counted in `_removed`
    until its place comes to the head. Behind that place the block may stand once more, and then is meant.
    """

    __slots__ = ("_block_ids", "_num_removed", "_removed")

    __contains__ = None
    """Would have to look through all of them: see `EngineState.is_free`."""

    def __init__(self, block_ids: Iterable[int] = ()) -> None:
        self._block_ids = deque(block_ids)
        self._removed: dict[int, int] = {}
        """How many of a block's places do not count, from the head on."""
        self._num_removed = 0

    def __len__(self) -> int:
        return len(self._block_ids) - self._num_removed

    def __iter__(self) -> Iterator[int]:
        return self._counting() if self._removed else iter(self._block_ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreeQueue) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"FreeQueue({list(self)})"

    def _counting(self) -> Iterator[int]:
        """Yields the blocks of those places that count."""
        removed = self._removed.copy()
        for block_id in self._block_ids:
            if removed.get(block_id):
                removed[block_id] -= 1
            else:
                yield block_id

    def take(self, num_blocks: int) -> list[int]:
        """Takes blocks from the head and returns them. Raises `IndexError` where there are fewer."""
        take = self._block_ids.popleft
        if not self._removed:
            return [take()] if num_blocks == 1 else [take() for _ in range(num_blocks)]
        taken: list[int] = []
        while len(taken) < num_blocks:
            block_id = take()
            if block_id in self._removed:
                self._pass_over(block_id)
            else:
                taken.append(block_id)
        return taken

    def _pass_over(self, block_id: int) -> None:
        self._num_removed -= 1
        self._removed[block_id] -= 1
        if not self._removed[block_id]:
            del self._removed[block_id]

    def remove(self, block_id: int) -> None:
        """Takes a block out, which must be there."""
        self._removed[block_id] = self._removed.get(block_id, 0) + 1
        self._num_removed += 1
        if self._num_removed > max(len(self._block_ids) // 2, _FEW_REMOVED):
            self._close_up()

    def append(self, block_ids: Sequence[int]) -> None:
        """Puts blocks at the tail, in their order."""
        self._block_ids.extend(block_ids)

    def put_first(self, block_ids: Sequence[int]) -> None:
        """Puts blocks at the head: the first of them is taken next."""
        if self._removed and not self._removed.keys().isdisjoint(block_ids):
            self._close_up()  # else their new places, and not the old ones, would be passed over
        self._block_ids.extendleft(reversed(block_ids))

    def _close_up(self) -> None:
        self._block_ids = deque(self)
        self._removed.clear()
        self._num_removed = 0

    def copy(self) -> FreeQueue:
        """Returns a copy that shares nothing with this one."""
        copy = FreeQueue()
        copy._block_ids = self._block_ids.copy()
        copy._removed = self._removed.copy()
        copy._num_removed = self._num_removed
        return copy
