"""How the map of the pool divides its rectangle, and in which order it lists the blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import itemgetter

from kvscope.analysis.pool_order import BlockGroup, PoolOrder
from kvscope.analysis.pool_view import PoolView
from kvscope.analysis.text import cell_width, visible
from kvscope.tui.view.lines import Span, fit, pad

NO_BLOCK = 255
"""The status of a place in which no block stands: the rest of a row whose group has ended."""

LEVELS = ((1, 2), (1, 1), *((2**power, 1) for power in range(1, 32)))
"""Blocks a cell and columns a cell, the roomiest first."""

NUM_LEVELS_FOR_GROUPS = 2
"""As far as a cell is one block, groups have rows of their own rather than cells with gaps."""

MAX_NAME_COLUMNS = 12

GROUP_NAMES = {"cached": "cached", "free": "free", "held": "held"}


TITLE_COLUMNS = 11
"""Of the panel's title beside its words: `── POOL ─ … ─`."""

NARROW_COLUMNS = 40

ORDER_WORDS: dict[PoolOrder, str] = {"id": "by id", "owner": "by owner", "free_queue": "by free queue"}


def title_words(num_blocks: int, block_size: int, order: PoolOrder, width: int) -> tuple[Span, ...]:
    """Returns the size of the pool and the order of the map; a narrow one leaves out the usual order, then units."""
    size, by = f"{num_blocks:,} blocks × {block_size} tokens", f", {ORDER_WORDS[order]}"
    if order == "id":
        return (Span(size + by if width > NARROW_COLUMNS else size, "dim"),)
    for text in (size + by, f"{num_blocks:,} blocks{by}"):
        if len(text) + TITLE_COLUMNS <= width:
            return (Span(text, "dim"),)
    return (Span(ORDER_WORDS[order], "dim"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolGrid:
    """How the map divides its rectangle."""

    num_blocks: int
    """With the null block, and the places in which no block stands."""
    blocks_per_cell: int
    cells_per_row: int
    """A multiple of 8 where there is room for 8."""
    cell_columns: int
    """Terminal cells of a map cell: 2 with a gap, or 1."""
    label_columns: int
    num_rows: int

    def block_at(self, row: int, column: int) -> int | None:
        """Returns the (first) block of the cell at a place of the map, None beside it."""
        cell = (column - self.label_columns) // self.cell_columns
        if column < self.label_columns or cell >= self.cells_per_row or not 0 <= row < self.num_rows:
            return None
        block_id = (row * self.cells_per_row + cell) * self.blocks_per_cell
        return block_id if block_id < self.num_blocks else None

    @property
    def blocks_per_row(self) -> int:
        return self.cells_per_row * self.blocks_per_cell


def pool_grid(num_blocks: int, width: int, height: int) -> PoolGrid:
    """Returns the roomiest density at which `num_blocks` fit, by id, into `width` × `height` cells."""
    return _grid((num_blocks,), width, height, len(str(max(num_blocks - 1, 0))) + 1, LEVELS) or _no_grid()


def _grid(
    sizes: Sequence[int], width: int, height: int, label_columns: int, levels: Sequence[tuple[int, int]]
) -> PoolGrid | None:
    """Returns the first of the densities at which the groups fit, each beginning a row of its own."""
    room = max(width - label_columns, 1)
    for blocks_per_cell, cell_columns in levels:
        cells = room // cell_columns
        cells = cells // 8 * 8 or cells
        per_row = cells * blocks_per_cell
        num_rows = sum(-(-size // per_row) for size in sizes) if cells else 0
        if cells and num_rows <= height:
            num_places = sum(-(-size // per_row) * per_row for size in sizes[:-1]) + sum(sizes[-1:])
            return PoolGrid(
                num_blocks=num_places,
                blocks_per_cell=blocks_per_cell,
                cells_per_row=cells,
                cell_columns=cell_columns,
                label_columns=label_columns,
                num_rows=num_rows,
            )
    return None


def _no_grid() -> PoolGrid:
    raise AssertionError("at 2**31 blocks a cell every pool fits")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedPool:
    """The pool as the map lists it."""

    view: PoolView
    """Its bytes by place."""
    grid: PoolGrid
    order: Sequence[int]
    """The block in each place, -1 for none."""
    labels: tuple[Span, ...]
    """Of each row; empty by id, where it is the first block's."""

    def place_of(self, block_id: int | None) -> int | None:
        """Returns where a block stands; the null block stands nowhere but by id."""
        if block_id is None or block_id not in self.order:
            return None
        return self.order.index(block_id)

    def places_of(self, block_ids: Sequence[int]) -> frozenset[int]:
        """Returns where blocks stand."""
        if not self.labels:
            return frozenset(block_ids)
        if not block_ids:
            return frozenset()
        return frozenset(compress(range(len(self.order)), map(set(block_ids).__contains__, self.order)))

    def cell_of(self, block_id: int) -> tuple[int, ...]:
        """Returns the blocks of the cell in which a block is drawn, in the order of the map; itself if it is not."""
        place, size = self.place_of(block_id), self.grid.blocks_per_cell
        if place is None:
            return (block_id,)
        first = place // size * size
        return tuple(found for found in self.order[first : first + size] if found >= 0)

    def block_in(self, place: int) -> int | None:
        """Returns the block in a place, or the last one before it; None where there is none."""
        place = min(place, len(self.order) - 1)
        while place >= 0 and self.order[place] < 0:
            place -= 1
        return self.order[place] if place >= 0 else None

    def moved(self, block_id: int, *, num_rows: int = 0, num_cells: int = 0) -> int:
        """Returns the block so many rows below, or cells behind, a block; at an end it is the last one there."""
        place = self.place_of(block_id) or 0
        last = len(self.order) - 1
        wanted = place + num_rows * self.grid.blocks_per_row + num_cells * self.grid.blocks_per_cell
        wanted = min(max(wanted, 0), last)
        while num_cells > 0 and wanted < last and self.order[wanted] < 0:
            wanted += 1  # over the end of a group into the next
        found = self.block_in(wanted)
        return block_id if found is None else found


def ordered_pool(
    pool: PoolView, groups: Sequence[BlockGroup], order: PoolOrder, width: int, height: int
) -> OrderedPool:
    """Lays the pool out in an order. Groups begin a row each where that costs no density, or the gap between cells."""
    if order == "id":
        grid = pool_grid(len(pool.status), width, height)
        return OrderedPool(view=pool, grid=grid, order=range(len(pool.status)), labels=())
    label_columns = _label_columns(pool, groups, width)
    num_blocks = sum(len(group.block_ids) for group in groups)
    flowing = _grid((num_blocks,), width, height, label_columns, LEVELS) or _no_grid()
    level = LEVELS.index((flowing.blocks_per_cell, flowing.cell_columns))
    sizes = [len(group.block_ids) for group in groups]
    grouped = _grid(sizes, width, height, label_columns, LEVELS[: max(level + 1, NUM_LEVELS_FOR_GROUPS)])
    grid = grouped or flowing
    places: list[int] = []
    for group in groups:
        places.extend(group.block_ids)
        if grouped is not None and group is not groups[-1]:
            places.extend([-1] * (-len(places) % grid.blocks_per_row))
    in_order = itemgetter(*places, -1, -1)  # of two places at least: of one it would return no tuple

    def by_place(by_block: bytes, no_block: int) -> bytes:
        """A place of -1 takes the one behind the last."""
        return bytes(in_order(by_block + bytes((no_block,))))[:-2]

    return OrderedPool(
        view=dataclasses.replace(
            pool,
            status=by_place(pool.status, NO_BLOCK),
            change=by_place(pool.change, 0),
            ref_cnt=by_place(pool.ref_cnt, 0) if grid.blocks_per_cell == 1 else b"",
        ),
        grid=grid,
        order=places,
        labels=tuple(_labels(groups, grid, is_grouped=grouped is not None)),
    )


def _label_columns(pool: PoolView, groups: Sequence[BlockGroup], width: int) -> int:
    names = [_name(group) for group in groups]
    widest = max(chain(map(cell_width, names), (len(str(pool.num_usable_blocks)),)))
    return min(widest, MAX_NAME_COLUMNS, max(width // 4, 4)) + 1


def _name(group: BlockGroup) -> str:
    return visible(group.request_id) if group.request_id is not None else GROUP_NAMES.get(group.kind, "")


def _labels(groups: Sequence[BlockGroup], grid: PoolGrid, *, is_grouped: bool) -> list[Span]:
    """Returns what stands before each row: whose its first block is; further rows of a group have its place there.

    In the free queue that place alone is told: how many blocks go out before it, and one.
    """
    columns, per_row = grid.label_columns - 1, grid.blocks_per_row
    labels: list[Span] = []
    begin = 0
    named: BlockGroup | None = None
    for group in groups:
        end = begin + len(group.block_ids)
        while len(labels) * per_row < end:
            offset = len(labels) * per_row - begin
            if group.kind == "queue":
                text, role = f"{offset + 1:>{columns}}", "dim"
            elif group is named:
                text, role = f"{f'+{offset}':>{columns}}", "dim"
            else:
                text, role = fit(_name(group), columns), "text" if group.request_id is not None else "dim"
            named = group
            labels.append(Span(pad(text, columns) + " ", role))
        begin = len(labels) * per_row if is_grouped else end
    return labels
