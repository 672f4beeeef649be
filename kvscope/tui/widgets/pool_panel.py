"""The block pool: legend, map, what is taken next, and the chosen block."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.pool_view import block_facts, next_out, pool_view
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.lines import Line, Span
from kvscope.tui.view.pool import (
    PoolLayout,
    block_line,
    legend_lines,
    map_lines,
    next_out_lines,
    pool_layout,
    pool_lines,
)
from kvscope.tui.widgets.panel import Panel

NUM_TITLE_AND_LEGEND_ROWS = 3


class PoolPanel(Panel):
    """The map of all blocks; `j k` move the chosen block by a row, `, ;` by one."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="pool", is_ascii=is_ascii, can_focus=True)
        self.shows_zero_counts = True
        self._layout: PoolLayout | None = None

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        if model.moment is None or model.timeline is None or model.config is None:
            return [self.title("POOL", (), width)]
        moment, config = model.moment, model.config
        words = (
            Span(f"{max(config.num_gpu_blocks - 1, 0):,} blocks × {config.block_size} tokens", "dim"),
            Span(", by id" if width > 40 else "", "dim"),
        )
        pool = pool_view(model.timeline, moment)
        layout = self._layout = pool_layout(len(pool.status), width, height - 1)
        chosen = model.block_id if self.has_focus else None
        facts = None if model.block_id is None else block_facts(model.timeline, moment, model.block_id)
        lines = pool_lines(
            map_lines(pool, layout.grid, frozenset(model.selected_blocks), chosen, model.glyphs),
            legend_lines(pool, layout.grid, width, model.glyphs, shows_zero=self.shows_zero_counts),
            next_out_lines(next_out(moment, width), width, layout.num_next_out, model.glyphs),
            block_line(facts, width, model.glyphs),
            layout,
            width,
        )
        return [self.title("POOL", words, width), *lines]

    @property
    def blocks_per_row(self) -> int:
        return 1 if self._layout is None else self._layout.grid.blocks_per_row

    @property
    def blocks_per_cell(self) -> int:
        return 1 if self._layout is None else self._layout.grid.blocks_per_cell

    def block_at(self, row: int, column: int) -> int | None:
        """Returns the (first) block under a cell of the widget."""
        if self._layout is None:
            return None
        return self._layout.grid.block_at(row - NUM_TITLE_AND_LEGEND_ROWS, column)
