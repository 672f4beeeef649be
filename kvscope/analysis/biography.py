"""A block's biography: what happened to it, step by step, as sentences. Knows only the events that name the block."""

from __future__ import annotations

from collections.abc import Iterator

from kvscope import events as ev
from kvscope.analysis.happenings import Happening
from kvscope.analysis.searched import Searched
from kvscope.analysis.spans import Part, Sentence, block, count, dim, request, say
from kvscope.replay.timeline import Timeline

STRETCH_STEPS = 2_000
_MAX_NAMED_HOLDERS = 3


class Biographer:
    """Tells the life of one block; a recording that has grown is read on from where it ended.

    Begun in the middle of a recording, it does not know who held the block before.
    """

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self._holders: dict[str, None] = {}
        self._was_taken = False
        self._is_cached = False

    def read(self, timeline: Timeline, first_step: int, last_step: int) -> Iterator[Happening | Searched]:
        """Yields what happened to the block in order, and after each stretch of steps how far it is."""
        for begin in range(first_step, last_step + 1, STRETCH_STEPS):
            end = min(begin + STRETCH_STEPS - 1, last_step)
            for step, event in timeline.block_events(self.block_id, begin, end):
                sentence = self.hear(event)
                if sentence is not None:
                    yield Happening(step, sentence)
            yield Searched(end)

    def hear(self, event: ev.Event) -> Sentence | None:
        """Returns what the next event that names the block says of it."""
        match event:
            case ev.BlockAllocated():
                verb = "taken again for " if self._was_taken else "taken for "
                self._was_taken, self._is_cached = True, False
                self._holders = {event.request_id: None}
                return Sentence("+", "new", say(verb, request(event.request_id)))
            case ev.BlockCached():
                self._is_cached = True
                return self._published(event)
            case ev.BlockTouched():
                return self._hit(event)
            case ev.BlockReleased():
                return self._released(event)
            case ev.BlockEvicted():
                self._is_cached = False
                block_hash = event.block_hashes[event.block_ids.index(self.block_id)]
                parts: list[Part] = ["evicted: ", request(event.request_id), " needed a free block"]
                return Sentence("◆", "evicted", say(*parts, dim(f", hash {_digits(block_hash)} lost")))
            case ev.BlockUncached():
                self._is_cached = False
                reasons = {"preempted": "its request was preempted", "step_failed": "the step failed"}
                reason = reasons.get(event.reason, "it could not be loaded")
                return Sentence("░", "cached", say(f"taken back from the prefix cache: {reason}"))
            case _:
                return None

    def _published(self, event: ev.BlockCached) -> Sentence:
        place = event.block_ids.index(self.block_id)
        parts: list[Part] = ["published for prefix hits: block ", str(event.first_index + place), " of "]
        parts += [request(event.request_id), dim(f", hash {_digits(event.block_hashes[place])}")]
        first_id = event.duplicate_of[place] if event.duplicate_of else 0
        if first_id:
            parts += [dim(", the same tokens as in block "), block(first_id)]
        return Sentence("░", "cached", say(*parts))

    def _hit(self, event: ev.BlockTouched) -> Sentence:
        ref_cnt = event.ref_cnts[event.block_ids.index(self.block_id)]
        parts: list[Part] = ["hit by ", request(event.request_id)]
        if ref_cnt == 1:
            self._holders = {}
            parts.append(", out of the free queue")
        else:
            parts += [f", now shared by {ref_cnt}", *self._named(", with ", self._holders)]
        self._holders[event.request_id] = None
        return Sentence("●", "hit", say(*parts))

    def _released(self, event: ev.BlockReleased) -> Sentence:
        self._holders.pop(event.request_id, None)
        parts: list[Part] = ["released by ", request(event.request_id)]
        if self.block_id in event.still_held:
            others = self._named(", still held by ", self._holders)
            parts += others or [", still held by others"]
        else:
            self._holders = {}
            end = "head" if self.block_id in event.freed_to_head else "tail"
            parts.append(f": free, at the {end} of the free queue")
            parts.append(dim(", still cached" if self._is_cached else ", not cached"))
        return Sentence("−", "note", say(*parts))

    def _named(self, lead: str, holders: dict[str, None]) -> list[Part]:
        names = list(holders)
        if not names:
            return []
        parts: list[Part] = [lead]
        for place, name in enumerate(names[:_MAX_NAMED_HOLDERS]):
            parts += [", "] if place else []
            parts.append(request(name))
        if len(names) > _MAX_NAMED_HOLDERS:
            parts.append(f" and {count(len(names) - _MAX_NAMED_HOLDERS, 'other')}")
        return parts


def _digits(block_hash: int) -> str:
    return f"{block_hash:016x}"[:8]
