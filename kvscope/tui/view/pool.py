"""What stands around the map of the pool: its legend, what is taken next, the chosen block, and how rows divide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.analysis.pool_view import BlockFacts, BlockStatus, NextOut, PoolView
from kvscope.analysis.text import cell_width, visible
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import Line, Span, block_target, cut_line, fit, line_width, pad_line, request_target
from kvscope.tui.view.pool_grid import PoolGrid


def legend_lines(pool: PoolView, grid: PoolGrid, width: int, glyphs: Glyphs, *, shows_zero: bool) -> list[Line]:
    """Returns two lines: what the blocks are, what happened to them. Counts stand beside their glyphs."""
    states = [
        (Span(glyphs.live, "live"), "live", pool.num_live),
        (Span("2+", "shared bold"), "shared", pool.num_shared),
        (Span(glyphs.cached, "cached"), "cached", pool.num_cached),
        (Span(glyphs.free, "free"), "free", pool.num_free),
    ]
    changes = [
        (Span(glyphs.new, "new"), "new", pool.num_new),
        (Span(glyphs.evicting, "evict"), "evicting", pool.num_evicting),
        (Span(glyphs.hit, "hit"), "hit", pool.num_hit),
        (Span(glyphs.released, "released"), "released", pool.num_released),
    ]
    scale: Line = ()
    if grid.blocks_per_cell > 1:
        scale = (Span(f"1 cell = {grid.blocks_per_cell} blocks", "dim"),)
    return [
        _legend(states, width, shows_zero=shows_zero),
        _legend(changes, width, shows_zero=shows_zero, tail=scale),
    ]


def _legend(entries: Sequence[tuple[Span, str, int]], width: int, *, shows_zero: bool, tail: Line = ()) -> Line:
    """Roomy where it fits, then close, then without the zero counts, without the names, without the tail: a figure is
    never cut, and stands beside its glyph."""
    attempts: tuple[tuple[bool, str, Line, bool], ...] = (
        (True, "   ", tail, True),
        (True, " ", tail, True),
        (False, " ", tail, True),
        (False, " ", tail, False),
        (False, " ", (), False),
    )
    for zero, gap, end, has_names in attempts:
        if zero and not shows_zero:
            continue
        spans: list[Span] = []
        for glyph, name, number in entries:
            if not number and not zero:
                continue
            spans += [
                glyph if number else glyph._replace(role="dim"),
                Span(f" {name} " if has_names else " ", "dim"),
                Span(f"{number:,}", "bold" if number else "dim"),
                Span(gap),
            ]
        if not spans:
            spans = [Span("no block changed", "dim"), Span(" ")]
        if end:
            spans += [Span("  "), *end]
        else:
            spans.pop()
        if line_width(spans) <= width:
            return tuple(spans)
    return cut_line(tuple(spans), width)


def next_out_lines(blocks: Sequence[NextOut], width: int, num_lines: int, glyphs: Glyphs) -> list[Line]:
    """Returns the head of the free queue: what is taken next, and what that loses."""
    title = "next out "
    if not blocks:
        return [(Span(title, "dim"), Span("no block is free", "bad"))]
    lines: list[list[Span]] = [[Span(title, "dim")]]
    used = len(title)
    for block in blocks:
        glyph, role = (glyphs.evicting, "evict") if block.is_cached else (glyphs.free, "text")
        text = f"{glyph}{block.block_id}"
        if used + cell_width(text) > width:
            if len(lines) == num_lines:
                break
            lines.append([Span(" " * len(title))])
            used = len(title)
        lines[-1] += [Span(text, role, "", block_target(block.block_id)), Span(" ")]
        used += cell_width(text) + 1
    return [tuple(line) for line in lines]


def block_line(facts: BlockFacts | None, width: int, glyphs: Glyphs) -> Line:
    """Returns one line on the chosen block: whose it is, and the beginning of its text."""
    if facts is None:
        return ()
    spans: list[Span] = [Span("block ", "bold"), Span(str(facts.block_id), "bold")]
    if facts.ref_cnt:
        spans += [Span(" ref ", "dim"), Span(str(facts.ref_cnt))]
    for holder in facts.holders[:1]:
        name = f"{fit(visible(holder.request_id), 24)}[{holder.index}]"
        spans += [Span(" "), Span(name, "text", "", request_target(holder.request_id))]
    if len(facts.holders) > 1:
        spans.append(Span(f" and {len(facts.holders) - 1} more", "dim"))
    if facts.free_queue_position is not None:
        what = "cached" if facts.status is BlockStatus.CACHED else "free"
        spans.append(Span(f" {what}, {ordinal(facts.free_queue_position)} out", "dim"))
        if facts.origin is not None:
            name = f" {fit(visible(facts.origin.request_id), 24)}[{facts.origin.index}]"
            spans.append(Span(name, "text", "", request_target(facts.origin.request_id)))
    if facts.status is BlockStatus.NULL:
        spans.append(Span(" the null block, never handed out", "dim"))
    room = width - line_width(spans) - 3
    if facts.text and room >= 4:
        spans += [Span(" “", "dim"), Span(fit(facts.text, room), "dim"), Span("”", "dim")]
    return cut_line(tuple(spans), width)


def ordinal(position: int) -> str:
    """Returns a place in the free queue in words; 0 is the 1st to be taken."""
    number = position + 1
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLayout:
    """Rows of the panel's parts, without its title."""

    grid: PoolGrid
    num_next_out: int
    height: int


def map_height(height: int, num_block_lines: int = 1) -> int:
    """Returns the rows that the map may have: the legend has two, the free queue's head one."""
    return max(height - 3 - num_block_lines, 1)


def pool_layout(grid: PoolGrid, height: int, max_next_out: int = 3, num_block_lines: int = 1) -> PoolLayout:
    """Divides the panel: the map gets what it needs for its density, the free queue's head what is left."""
    spare = height - 2 - grid.num_rows - num_block_lines
    return PoolLayout(grid=grid, num_next_out=max(min(spare - 1, max_next_out), 1), height=height)


def pool_lines(
    map_rows: Sequence[Line],
    legend: Sequence[Line],
    next_out: Sequence[Line],
    block: Sequence[Line],
    layout: PoolLayout,
    width: int,
) -> list[Line]:
    """Stacks the panel's parts: legend and map at the top, the free queue's head and the block at the bottom."""
    top = [*legend, *map_rows]
    bottom = [*next_out, *[()] * (layout.num_next_out - len(next_out)), *block]
    blank: list[Line] = [()] * max(layout.height - len(top) - len(bottom), 0)
    return [pad_line(line, width) for line in [*top, *blank, *bottom][: layout.height]]
