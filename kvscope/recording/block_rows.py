"""Rows of what happens to blocks: lists of blocks, their hashes and reference counts."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from kvscope import events as ev
from kvscope.recording import layouts as at
from kvscope.recording.packing import pack, unpack
from kvscope.recording.row_types import MAX_INTEGER, Columns, DoesNotFit, ReaderTables, WriterTables


def pack_blocks(block_ids: tuple[int, ...]) -> tuple[int | None, str | None]:
    """Returns the columns `block` and `data` for a list of blocks."""
    if len(block_ids) == 1 and 0 <= block_ids[0] <= MAX_INTEGER:
        return block_ids[0], None
    return None, _pack_again(block_ids)


@lru_cache(maxsize=4)
def _pack_again(block_ids: tuple[int, ...]) -> str:
    """As `pack`. Blocks that are evicted are then allocated, and those of a prefill published, in the same step."""
    return pack(block_ids)


def unpack_blocks(block: int | None, data: str | None) -> tuple[int, ...]:
    return unpack(data) if block is None else (block,)  # type: ignore[arg-type]


def pack_hashes(block_hashes: tuple[int, ...], num_blocks: int) -> bytes:
    if len(block_hashes) != num_blocks:
        raise DoesNotFit
    return struct.pack(f">{num_blocks}Q", *block_hashes)


def unpack_hashes(hashes: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(hashes) // 8}Q", hashes)


def encode_block_cached(tables: WriterTables, event: ev.BlockCached) -> Columns:
    """`a` is the first index; `b` how many `duplicate_of` lie behind the block ids in `data`."""
    block_ids, duplicates = event.block_ids, event.duplicate_of
    hashes = pack_hashes(event.block_hashes, len(block_ids))
    block: int | None
    data: str | None
    num_duplicates = None
    if duplicates:
        block, data, num_duplicates = None, pack(block_ids + duplicates), len(duplicates)
    else:
        block, data = pack_blocks(block_ids)
    request = tables.number_of(event.request_id)
    return (at.BLOCK_CACHED, request, block, event.first_index, num_duplicates, data, hashes)


def decode_block_cached(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    block_ids, duplicates = unpack_blocks(block, data), ()
    if b is not None:
        block_ids, duplicates = block_ids[:-b], block_ids[-b:]  # type: ignore[assignment]
    return ev.BlockCached(
        request_id=tables.name_of(request),
        first_index=a,
        block_ids=block_ids,
        block_hashes=unpack_hashes(hashes),
        duplicate_of=duplicates,
    )


def encode_block_evicted(tables: WriterTables, event: ev.BlockEvicted) -> Columns:
    hashes = pack_hashes(event.block_hashes, len(event.block_ids))
    block, data = pack_blocks(event.block_ids)
    return (at.KIND_OF[ev.BlockEvicted], tables.number_of(event.request_id), block, None, None, data, hashes)


def decode_block_evicted(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    return ev.BlockEvicted(
        request_id=tables.name_of(request),
        block_ids=unpack_blocks(block, data),
        block_hashes=unpack_hashes(hashes),
    )


def encode_block_touched(tables: WriterTables, event: ev.BlockTouched) -> Columns:
    """`a` is the number of blocks; their reference counts lie behind them in `data`."""
    if len(event.block_ids) != len(event.ref_cnts):
        raise DoesNotFit
    data = pack(event.block_ids + event.ref_cnts)
    request = tables.number_of(event.request_id)
    return (at.KIND_OF[ev.BlockTouched], request, None, len(event.block_ids), None, data, None)


def decode_block_touched(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    numbers = unpack(data)
    return ev.BlockTouched(request_id=tables.name_of(request), block_ids=numbers[:a], ref_cnts=numbers[a:])


def encode_block_released(tables: WriterTables, event: ev.BlockReleased) -> Columns:
    """`data` holds all blocks: `a` of them went to the head, `b` to the tail, the rest is still held."""
    data = pack(event.freed_to_head + event.freed_to_tail + event.still_held)
    num_head, num_tail = len(event.freed_to_head), len(event.freed_to_tail)
    return (at.KIND_OF[ev.BlockReleased], tables.number_of(event.request_id), None, num_head, num_tail, data, None)


def decode_block_released(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    block_ids = unpack(data)
    return ev.BlockReleased(
        request_id=tables.name_of(request),
        freed_to_head=block_ids[:a],
        freed_to_tail=block_ids[a : a + b],
        still_held=block_ids[a + b :],
    )


def decode_block_allocated(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    return ev.BlockAllocated(request_id=tables.name_of(request), block_ids=unpack_blocks(block, data))
