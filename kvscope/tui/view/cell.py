"""The blocks of one cell of the pool's map, where a cell stands for several: a row each, a jump to its biography."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.pool_view import BlockFacts, BlockHolder, BlockStatus, PoolView
from kvscope.analysis.text import cell_width, visible
from kvscope.tui.view.entries import Entry
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import Line, Span, block_target, cut_line, fit, pad, request_target
from kvscope.tui.view.pool import ordinal
from kvscope.tui.view.pool_map import block_glyph

MAX_ID_CELLS = 24
MIN_TEXT_COLUMNS = 6
MIN_HELD_COLUMNS, MIN_CONTENT_COLUMNS = 18, 13
"""Room for the usual ids, so that the columns stay where they are while time moves."""

NO_ROWS: tuple[Line, Sequence[Entry]] = ((), ())


def title_words(block_ids: Sequence[int], step: int) -> str:
    """Returns which blocks they are; the map may have listed them in another order than by id."""
    if len(block_ids) == 1:
        return f"block {block_ids[0]}, after step {step}"
    if list(block_ids) == list(range(block_ids[0], block_ids[-1] + 1)):
        return f"{len(block_ids)} blocks, {block_ids[0]:,} to {block_ids[-1]:,}, after step {step}"
    return f"{len(block_ids)} blocks, as the map listed them, after step {step}"


def cell_rows(blocks: Sequence[BlockFacts], pool: PoolView, width: int, glyphs: Glyphs) -> tuple[Line, Sequence[Entry]]:
    """Returns the names of the columns, and a row for each block: glyph, references, holder, whose content, text.

    Where nobody holds a block its place in the free queue is told instead.
    """
    if not blocks:
        return NO_ROWS
    held = [_held(facts) for facts in blocks]
    content = [_name(facts.origin) if facts.origin is not None else "" for facts in blocks]
    id_columns = max(len("block"), *(len(str(facts.block_id)) for facts in blocks))
    ref_columns = max(len("ref"), *(len(str(facts.ref_cnt)) for facts in blocks))
    held_columns = max(MIN_HELD_COLUMNS, *map(cell_width, held))
    content_columns = max(MIN_CONTENT_COLUMNS, *map(cell_width, content))
    heads = f" {'block':>{id_columns}}    {'ref':>{ref_columns}}  {pad('held by', held_columns)}  "
    head = (Span(f"{heads}{pad('published by', content_columns)}  text", "dim"),)
    room = width - cell_width(heads) - content_columns - 4
    entries: list[Entry] = []
    for facts, holder, origin in zip(blocks, held, content, strict=True):
        glyph, role = block_glyph(pool, facts.block_id, glyphs, is_selected=False)
        line: Line = (
            Span(f" {facts.block_id:>{id_columns}}  ", "bold"),
            Span(glyph, role),
            Span(f" {facts.ref_cnt:>{ref_columns}}  ", "text" if facts.ref_cnt else "dim"),
            _named(pad(holder, held_columns), facts.holders[0] if facts.holders else None),
            Span("  "),
            _named(pad(origin, content_columns), facts.origin),
            Span("  "),
        )
        if facts.text and room >= MIN_TEXT_COLUMNS:
            line = (*line, Span("“", "dim"), Span(fit(facts.text, room)), Span("”", "dim"))
        entries.append(Entry((cut_line(line, width),), block_target(facts.block_id)))
    return cut_line(head, width), entries


def _held(facts: BlockFacts) -> str:
    if facts.status is BlockStatus.NULL:
        return "the null block"
    if facts.holders:
        others = len(facts.holders) - 1
        return _name(facts.holders[0]) + (f" +{others} more" if others else "")
    return "" if facts.free_queue_position is None else f"{ordinal(facts.free_queue_position)} out"


def _name(holder: BlockHolder) -> str:
    return f"{fit(visible(holder.request_id), MAX_ID_CELLS)}[{holder.index}]"


def _named(text: str, holder: BlockHolder | None) -> Span:
    """A cell of the table, a jump to the request that it names."""
    return Span(text, "dim") if holder is None else Span(text, "text", "", request_target(holder.request_id))
