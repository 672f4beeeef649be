"""The map of the pool, row by row: one glyph a block, or a summary of k blocks a cell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from kvscope.analysis.pool_view import BlockChange, BlockStatus, PoolView
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import Line, Span, merge
from kvscope.tui.view.pool_grid import NO_BLOCK, PoolGrid

STRONGEST_FIRST = (BlockChange.EVICTING, BlockChange.NEW, BlockChange.HIT, BlockChange.RELEASED)

CHANGE_ROLES = {
    BlockChange.NEW: "new",
    BlockChange.EVICTING: "evict",
    BlockChange.HIT: "hit",
    BlockChange.RELEASED: "released",
}

NO_BLOCKS = bytes((NO_BLOCK,))

LIVE_STATUSES = bytes((BlockStatus.LIVE, BlockStatus.SHARED))


def map_lines(
    pool: PoolView,
    grid: PoolGrid,
    selected: Collection[int],
    chosen_block: int | None,
    glyphs: Glyphs,
    labels: Sequence[Span] = (),
    named: Collection[int] = (),
) -> list[Line]:
    """Returns the rows of the map. `selected` are the blocks of the selected request, `chosen_block` the cursor.

    Those `named` by the event behind which the state is shown lie on a background where they have no other.
    In another order than by id `pool` is in that order, blocks are places in it, and each row has a label.
    """
    per_row = grid.blocks_per_row
    selected_in, named_in = _by_row(selected, per_row), _by_row(named, per_row)
    lines: list[Line] = []
    for row in range(grid.num_rows):
        first = row * per_row
        end = min(first + per_row, grid.num_blocks)
        blocks = RowBlocks(
            pool.status[first:end],
            pool.change[first:end],
            pool.ref_cnt[first:end] if grid.blocks_per_cell == 1 else b"",
        )
        marked = (
            selected_in.get(row, _NONE),
            named_in.get(row, _NONE),
            chosen_block - first if chosen_block is not None and first <= chosen_block < end else None,
        )
        label = labels[row] if labels else Span(f"{first:>{grid.label_columns - 1}} ", "dim")
        lines.append(_row(blocks, marked, grid.blocks_per_cell, grid.cell_columns, label, glyphs))
    return lines


_NONE: frozenset[int] = frozenset()


def _by_row(block_ids: Iterable[int], per_row: int) -> dict[int, frozenset[int]]:
    """Returns in which rows blocks stand, and at which places of them."""
    rows: dict[int, list[int]] = {}
    for block_id in block_ids:
        rows.setdefault(block_id // per_row, []).append(block_id % per_row)
    return {row: frozenset(places) for row, places in rows.items()}


class RowBlocks(NamedTuple):
    """What a `PoolView` has of the blocks of one row; no reference counts where a cell stands for several blocks."""

    status: bytes
    change: bytes
    ref_cnt: bytes


@lru_cache(maxsize=512)
def _row(
    blocks: RowBlocks,
    marked: tuple[frozenset[int], frozenset[int], int | None],
    blocks_per_cell: int,
    cell_columns: int,
    label: Span,
    glyphs: Glyphs,
) -> Line:
    """Returns a row; from one step to the next most rows are as they were.

    `marked`: the places in the row of the selected blocks, of those named by the event, and of the chosen one.
    """
    selected, named, chosen = marked
    if blocks_per_cell == 1:
        cells = _one_block_cells(blocks, selected, chosen, glyphs, is_roomy=cell_columns == 2)
    else:
        cells = _summary_cells(blocks, blocks_per_cell, selected, chosen, glyphs)
    for place in named:
        index = place // blocks_per_cell * cell_columns
        if cells[index].on not in ("chosen", "selected"):
            cells[index] = cells[index]._replace(on="cursor")
    return merge((label, *cells))


def _one_block_cells(
    blocks: RowBlocks, selected: Collection[int], chosen: int | None, glyphs: Glyphs, *, is_roomy: bool
) -> list[Span]:
    spans: list[Span] = []
    for place in range(len(blocks.status)):
        is_selected = place in selected
        char, role = block_glyph(blocks, place, glyphs, is_selected=is_selected)
        on = "chosen" if place == chosen else "selected" if is_selected else ""
        spans.append(Span(char, role, on))
        if is_roomy:
            joins = is_selected and place + 1 in selected
            spans.append(Span(" ", "text", "selected" if joins else ""))
    return spans


def block_glyph(pool: PoolView | RowBlocks, block_id: int, glyphs: Glyphs, *, is_selected: bool) -> tuple[str, str]:
    """Returns the glyph of one block and its role: what happened to it in the step, else what it is after it."""
    status = pool.status[block_id]
    if status == NO_BLOCK:
        return " ", "text"
    change = BlockChange(pool.change[block_id])
    if change and not (change is BlockChange.RELEASED and status in LIVE_STATUSES):
        return glyphs.change(change), CHANGE_ROLES[change]
    match status:
        case BlockStatus.NULL:
            return glyphs.null, "dim"
        case BlockStatus.LIVE:
            return glyphs.live, "on-selected" if is_selected else "live"
        case BlockStatus.SHARED:
            ref_cnt = pool.ref_cnt[block_id]
            return (str(ref_cnt) if ref_cnt <= 9 else glyphs.shared_many), "shared"
        case BlockStatus.CACHED:
            return glyphs.cached, "cached"
        case _:
            return glyphs.free, "free"


def _summary_cells(
    blocks: RowBlocks, size: int, selected: Collection[int], chosen: int | None, glyphs: Glyphs
) -> list[Span]:
    status, change = blocks.status, blocks.change
    selected_cells = {place // size for place in selected}
    spans = [
        _summary(status[start : start + size], change[start : start + size], glyphs, start // size in selected_cells)
        for start in range(0, len(status), size)
    ]
    if chosen is not None:
        spans[chosen // size] = spans[chosen // size]._replace(on="chosen")
    return spans


@lru_cache(maxsize=1 << 14)
def _summary(statuses: bytes, changes: bytes, glyphs: Glyphs, is_selected: bool) -> Span:
    """One cell for some blocks: the strongest event, else the live share, else what most of them are."""
    behind = "selected" if is_selected else ""
    statuses = statuses.rstrip(NO_BLOCKS)
    if not statuses:
        return Span(" ")
    if changes.strip(b"\x00"):
        for change in STRONGEST_FIRST:
            if change in changes:
                return Span(glyphs.change(change), CHANGE_ROLES[change], behind)
    num_shared = statuses.count(BlockStatus.SHARED)
    num_live = statuses.count(BlockStatus.LIVE) + num_shared
    num_cached = statuses.count(BlockStatus.CACHED)
    if not num_live:
        if num_cached * 2 > len(statuses):
            return Span(glyphs.cached, "cached", behind)
        return Span(glyphs.free, "free", behind)
    is_mostly_cached = num_cached * 2 > len(statuses) - num_live
    role = "on-selected" if is_selected else "shared" if num_shared * 2 > num_live else "live"
    char = glyphs.eighths[max(round(num_live * 6 / len(statuses)), 1)] if glyphs.has_eighths else glyphs.live
    return Span(char, role, behind or ("cached-tint" if is_mostly_cached and num_cached else ""))
