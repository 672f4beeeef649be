"""The published blocks after a step by their content: kept from one step to the next, and only changed where they do.

A look at a near step changes the few blocks that were published or lost between the two, by their events; a look
further away compares all blocks with those that are known.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from itertools import compress, count
from operator import ne, or_

from kvscope import events as ev
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import BlockOrigins, Origin

ReadChain = Callable[[str, int], "array[int]"]
"""Reads a request's chain up to at least so many links (where it has them)."""


_NEAR_STEPS = 24
"""Reading the events of so many steps costs about as much as comparing a large pool block by block."""


class PublishedBlocks:
    """The blocks of one step, by the link of a chain at which each ends.

    A block whose link is not known yet is unread: outputs are slow to read, and few prompts hold another one's output.
    """

    def __init__(self) -> None:
        self.chains: dict[str, array[int]] = {}
        """By request, the links that were read: each stands for all tokens up to its block's end. None gets shorter."""
        self._step: int | None = None
        self._origins = BlockOrigins()
        self._block_at: dict[int, int] = {}
        self._equals_at: dict[int, set[int]] = {}
        """By link, where several blocks have that content: all of them."""
        self._unread: dict[str, dict[int, int]] = {}
        """By request: its unread blocks, each with its index."""
        self._unread_behind: dict[int, set[str]] = {}
        """By the last known link of a request: those that have had unread blocks behind it."""

    def move_to(self, timeline: Timeline, moment: Moment, read_chain: ReadChain) -> None:
        """Takes up the blocks of a moment."""
        now, step, old_step = moment.state.cached_from, moment.step, self._step
        if step == old_step:
            return
        self._step = None  # stays so where something cannot be read
        if old_step is not None and abs(step - old_step) <= _NEAR_STEPS:
            self._update(_changed_blocks(timeline, min(step, old_step) + 1, max(step, old_step)), now, read_chain)
        else:
            self._compare(now, read_chain)
        self._step = step

    def first_at(self, link: int, moment: Moment) -> int | None:
        """Returns the first published block with the content, None where there is none (or it is unread)."""
        block_id = self._block_at.get(link)
        group = None if block_id is None else moment.state.duplicate_groups.get(block_id)
        return block_id if group is None else next(iter(group))

    def reveal(self, links: Iterable[int], read_chain: ReadChain) -> bool:
        """Reads the contents of the blocks behind the links; False where there are none."""
        is_new = False
        for link in links:
            for request_id in self._unread_behind.get(link, ()):
                unread = self._unread.get(request_id)
                if unread:
                    chain = read_chain(request_id, max(unread.values()) + 1)
                    for block_id, index in unread.items():
                        self._put(chain[index], block_id)
                    unread.clear()
                    is_new = True
            self._unread_behind.pop(link, None)
        return is_new

    def _compare(self, now: BlockOrigins, read_chain: ReadChain) -> None:
        """Finds what changed, and begins anew where that is most of the pool."""
        old = self._origins
        has_other = map(ne, now.request_ids, old.request_ids)
        stands_elsewhere = map(ne, now.indexes, old.indexes)
        changed = list(compress(count(), map(or_, has_other, stands_elsewhere)))
        if len(changed) * 3 > len(now) or len(now.request_ids) != len(old.request_ids):
            self._origins = BlockOrigins.of_pool(len(now.request_ids))
            for known in (self._block_at, self._equals_at, self._unread, self._unread_behind):
                known.clear()
            changed = list(now)
        self._update(changed, now, read_chain)

    def _update(self, block_ids: Iterable[int], now: BlockOrigins, read_chain: ReadChain) -> None:
        origins, block_at, chains = self._origins, self._block_at, self.chains
        for block_id in block_ids:
            old, new = origins.get(block_id), now.get(block_id)
            if old == new:
                continue
            if old is not None:
                origins.pop(block_id)
                self._take(old, block_id)
            if new is not None:
                request_id, index = new
                links = chains.get(request_id) or read_chain(request_id, 1)
                origins.put((block_id,), request_id, index)
                if index >= len(links):
                    self._unread.setdefault(request_id, {})[block_id] = index
                    self._unread_behind.setdefault(links[-1], set()).add(request_id)
                elif block_at.setdefault(links[index], block_id) != block_id:
                    self._put(links[index], block_id)

    def _put(self, link: int, block_id: int) -> None:
        other = self._block_at.setdefault(link, block_id)
        if other != block_id:
            self._equals_at.setdefault(link, {other}).add(block_id)

    def _take(self, origin: Origin, block_id: int) -> None:
        """Forgets a block: among the unread ones, or at its link."""
        request_id, index = origin
        unread = self._unread.get(request_id)
        if unread is not None and unread.pop(block_id, None) is not None:
            return
        link = self.chains[request_id][index]
        equals = self._equals_at.get(link)
        if equals is None:
            del self._block_at[link]
            return
        equals.remove(block_id)
        self._block_at[link] = next(iter(equals))
        if len(equals) == 1:
            del self._equals_at[link]


def _changed_blocks(timeline: Timeline, first_step: int, last_step: int) -> set[int]:
    """Returns the blocks that were published or lost in the steps."""
    kinds = (ev.BlockCached, ev.BlockEvicted, ev.BlockUncached)
    return {
        block_id
        for _, events in timeline.select_events(kinds, first_step, last_step)
        for event in events
        if isinstance(event, kinds)
        for block_id in event.block_ids
    }
