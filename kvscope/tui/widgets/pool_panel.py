"""The block pool: legend, map, what is taken next, and the chosen block."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.event_subjects import blocks_of
from kvscope.analysis.pool_order import PoolOrder, block_groups
from kvscope.analysis.pool_view import BlockFacts, block_facts, next_out, pool_view
from kvscope.replay.timeline import Moment, Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.block import fact_lines
from kvscope.tui.view.lines import EMPTY, Line, Span, rule
from kvscope.tui.view.pool import (
    PoolLayout,
    block_line,
    legend_lines,
    map_height,
    next_out_lines,
    pool_layout,
    pool_lines,
)
from kvscope.tui.view.pool_grid import OrderedPool, ordered_pool, title_words
from kvscope.tui.view.pool_map import map_lines
from kvscope.tui.widgets.panel import Panel

NUM_TITLE_AND_LEGEND_ROWS = 3
NUM_BLOCK_LINES = 7
MIN_ROWS_FOR_BLOCK = 30
"""So many rows a panel that has the screen for itself needs to tell all of the chosen block."""


class PoolPanel(Panel):
    """The map of all blocks; `j k` move the chosen block by a row, `, ;` by one, in the order of the map."""

    IS_OF_STEP = True

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="pool", is_ascii=is_ascii, can_focus=True)
        self.shows_zero_counts = True
        self._layout: PoolLayout | None = None
        self._ordered: tuple[tuple[Moment, PoolOrder, int, int], OrderedPool] | None = None

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        if model.moment is None or model.timeline is None or model.config is None:
            return [self.title("POOL", (), width)]
        moment, config = model.moment, model.config
        words = title_words(max(config.num_gpu_blocks - 1, 0), config.block_size, model.pool_order, width)
        pool = pool_view(model.timeline, moment)
        is_roomy = self.is_maximised and height >= MIN_ROWS_FOR_BLOCK
        num_block_lines = NUM_BLOCK_LINES if is_roomy else 1
        ordered = self._in_order(model.timeline, moment, width, map_height(height - 1, num_block_lines))
        max_next_out = height if self.is_maximised else 3
        layout = self._layout = pool_layout(ordered.grid, height - 1, max_next_out, num_block_lines)
        chosen = ordered.place_of(model.block_id) if self.has_focus else None
        facts = None if model.block_id is None else block_facts(model.timeline, moment, model.block_id)
        selected = ordered.places_of(model.selected_blocks)
        event = model.walk.event
        named = () if event is None else ordered.places_of(blocks_of(event))
        lines = pool_lines(
            map_lines(ordered.view, layout.grid, selected, chosen, model.glyphs, ordered.labels, named),
            legend_lines(
                pool, layout.grid, width, model.glyphs, shows_zero=self.shows_zero_counts or self.is_maximised
            ),
            next_out_lines(next_out(moment, width * layout.num_next_out), width, layout.num_next_out, model.glyphs),
            self._block_lines(facts, width) if is_roomy else [block_line(facts, width, model.glyphs)],
            layout,
            width,
        )
        return [self.title("POOL", words, width), *lines]

    def _block_lines(self, facts: BlockFacts | None, width: int) -> list[Line]:
        """All that is known of the chosen block."""
        model = self.model
        blank: list[Line] = [EMPTY] * NUM_BLOCK_LINES
        if facts is None or model.moment is None or model.config is None:
            return blank
        block_hash = model.moment.state.block_hashes.get(facts.block_id)
        title = rule(width, (Span(f"block {facts.block_id}", "bold"),), bar="─")
        lines = fact_lines(facts, block_hash, model.config.block_size, width, NUM_BLOCK_LINES - 1)
        return [title, *lines, *blank][:NUM_BLOCK_LINES]

    def _in_order(self, timeline: Timeline, moment: Moment, width: int, height: int) -> OrderedPool:
        """Returns the pool as the map lists it; laid out once for a moment, an order and a size."""
        key = (moment, self.model.pool_order, width, height)
        known = self._ordered
        if known is None or known[0][0] is not moment or known[0][1:] != key[1:]:
            groups = [] if self.model.pool_order == "id" else block_groups(timeline, moment, self.model.pool_order)
            pool = pool_view(timeline, moment)
            known = self._ordered = key, ordered_pool(pool, groups, self.model.pool_order, width, height)
        return known[1]

    def beside(self, block_id: int, *, num_rows: int = 0, num_cells: int = 0) -> int:
        """Returns the block so many rows below a block of the map, or so many cells behind it."""
        if self._ordered is None:
            return block_id
        return self._ordered[1].moved(block_id, num_rows=num_rows, num_cells=num_cells)

    def cell_of(self, block_id: int) -> tuple[int, ...]:
        """Returns the blocks that share a cell of the map with a block, itself among them."""
        return (block_id,) if self._ordered is None else self._ordered[1].cell_of(block_id)

    def block_at(self, row: int, column: int) -> int | None:
        """Returns the (first) block under a cell of the widget."""
        if self._ordered is None:
            return None
        ordered = self._ordered[1]
        place = ordered.grid.block_at(row - NUM_TITLE_AND_LEGEND_ROWS, column)
        return ordered.order[place] if place is not None and ordered.order[place] >= 0 else None
