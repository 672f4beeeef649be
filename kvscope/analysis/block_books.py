"""Whether the books of the pool balance over a run: blocks that nobody holds any more, and blocks given back twice.

Follows, event by event, who had each block last and who gave it back. Knows no words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvscope import events as ev
from kvscope.state import EngineState


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Blocks that are neither free nor in any block table."""

    step: int
    block_ids: tuple[int, ...]
    owner_ids: tuple[str, ...]
    """Who had them last."""
    ended_steps: dict[str, int]
    """When those of them that have ended did so: no `BlockReleased` of theirs followed."""
    num_free_blocks: int
    num_held_blocks: int
    pool: int
    block_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """One time that a block was given back."""

    step: int
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleFree:
    """A block that was given back while it was free."""

    block_id: int
    first: Freed
    second: Freed


class BlockBooks:
    """To be told of every step from the first on, in order."""

    def __init__(self, finished_steps: Mapping[str, int | None]) -> None:
        """`finished_steps`: when each request of the whole run ended, None where it did not."""
        self.first_leak: Leak | None = None
        self.double_frees: list[DoubleFree] = []
        self._finished_steps = finished_steps
        self._last_holders: dict[int, str] = {}
        self._freed: dict[int, Freed] = {}
        """Free blocks that were held before."""

    def note_events(self, step: int, events: Sequence[ev.Event]) -> None:
        """Follows who holds each block, and who gave it back."""
        for event in events:
            match event:
                case ev.BlockAllocated() | ev.BlockTouched():
                    for block_id in event.block_ids:
                        self._last_holders[block_id] = event.request_id
                        self._freed.pop(block_id, None)
                case ev.BlockReleased():
                    self._note_freed(Freed(step=step, request_id=event.request_id), event)
                case _:
                    pass

    def _note_freed(self, freed: Freed, released: ev.BlockReleased) -> None:
        for block_id in (*released.freed_to_head, *released.freed_to_tail):
            before = self._freed.get(block_id)
            if before is not None:
                self.double_frees.append(DoubleFree(block_id=block_id, first=before, second=freed))
            self._freed[block_id] = freed

    def note_state(self, step: int, state: EngineState) -> None:
        """Holds the sum of references against the tables; looks at the blocks themselves where they differ."""
        if self.first_leak is not None:
            return
        ended = set(state.ended_ids)
        live = [request for key, request in state.requests.items() if key not in ended]
        if sum(state.ref_cnts) != sum(len(request.block_ids) for request in live):
            self.first_leak = self._leak(step, state, {block_id for request in live for block_id in request.block_ids})

    def _leak(self, step: int, state: EngineState, held: set[int]) -> Leak:
        """`held`: the blocks of all live tables."""
        lost = [
            block_id
            for block_id in range(1, len(state.ref_cnts))
            if block_id not in held and not state.is_free(block_id)
        ]
        owners = tuple(dict.fromkeys(self._last_holders[key] for key in lost if key in self._last_holders))
        ends = {key: self._finished_steps.get(key) for key in owners}
        return Leak(
            step=step,
            block_ids=tuple(lost),
            owner_ids=owners,
            ended_steps={key: end for key, end in ends.items() if end is not None and end <= step},
            num_free_blocks=state.num_free_blocks,
            num_held_blocks=len(held),
            pool=state.num_usable_blocks,
            block_size=state.config.block_size if state.config is not None else 0,
        )
