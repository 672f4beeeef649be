"""Rows of several events: neighbours that are about one block each share one, as a step of many decoders has them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kvscope import events as ev
from kvscope.recording import layouts as at
from kvscope.recording.block_rows import unpack_hashes
from kvscope.recording.packing import pack, unpack
from kvscope.recording.row_types import EventRow, ReaderTables, WriterTables


class BlockRun:
    """Neighbouring events of one block each, to be one row.

    `data` has three numbers for each: what it is (see `layouts.ALLOCATED`), the request, the block. `hashes` has the
    hashes of those that have one. An evicted block and its allocation, which follows, are one entry.
    """

    def __init__(self, encode: Callable[[WriterTables, int, ev.Event], EventRow]) -> None:
        """`encode` makes a row of a single event: for a run whose numbers do not fit."""
        self._encode = encode
        self._first_seq = 0
        self._events: list[ev.Event] = []
        self._numbers: list[int] = []
        self._hashes: list[int] = []

    def take(self, tables: WriterTables, events: Sequence[ev.Event], seq: int) -> int:
        """Takes the event at `seq` if it is such a one, and returns how many it took."""
        event = events[seq]
        num_taken = 1
        if type(event) is ev.BlockAllocated:
            if len(event.block_ids) != 1:
                return 0
            what = at.ALLOCATED
        elif type(event) is ev.BlockCached:
            if len(event.block_ids) != 1 or len(event.block_hashes) != 1 or event.duplicate_of or event.first_index < 0:
                return 0
            what = at.CACHED + event.first_index
            self._hashes.append(event.block_hashes[0])
        elif type(event) is ev.BlockEvicted:
            if not _is_recycling(event, events[seq + 1] if seq + 1 < len(events) else None):
                return 0
            what = at.RECYCLED
            self._hashes.append(event.block_hashes[0])
            num_taken = 2
        else:
            return 0
        if not self._events:
            self._first_seq = seq
        self._events += events[seq : seq + num_taken]
        self._numbers += (what, tables.number_of(event.request_id), event.block_ids[0])
        return num_taken

    def end(self, tables: WriterTables) -> Iterator[EventRow]:
        """Yields the row of what was taken, and forgets it."""
        if not self._events:
            return
        try:
            hashes = struct.pack(f">{len(self._hashes)}Q", *self._hashes) if self._hashes else None
            yield EventRow(self._first_seq, at.BLOCK_STEPS, None, None, None, None, pack(self._numbers), hashes)
        except (ValueError, struct.error):  # some number does not fit
            for seq, event in enumerate(self._events, self._first_seq):
                yield self._encode(tables, seq, event)
        self._events, self._numbers, self._hashes = [], [], []


def _is_recycling(event: ev.BlockEvicted, following: ev.Event | None) -> bool:
    return (
        type(following) is ev.BlockAllocated
        and len(event.block_ids) == len(event.block_hashes) == 1
        and following.block_ids == event.block_ids
        and following.request_id == event.request_id
    )


def decode_block_steps(tables: ReaderTables, data: Any, hashes: Any) -> list[ev.Event]:
    numbers = iter(unpack(data))
    block_hashes = iter(unpack_hashes(hashes) if hashes is not None else ())
    name_of = tables.name_of
    events: list[ev.Event] = []
    for what, request, block_id in zip(numbers, numbers, numbers, strict=True):
        request_id, block_ids = name_of(request), (block_id,)
        if what >= at.CACHED:
            cached_hash = (next(block_hashes),)
            events.append(
                ev.BlockCached(
                    request_id=request_id,
                    first_index=what - at.CACHED,
                    block_ids=block_ids,
                    block_hashes=cached_hash,
                )
            )
            continue
        if what == at.RECYCLED:
            evicted_hash = (next(block_hashes),)
            events.append(ev.BlockEvicted(request_id=request_id, block_ids=block_ids, block_hashes=evicted_hash))
        events.append(ev.BlockAllocated(request_id=request_id, block_ids=block_ids))
    return events
