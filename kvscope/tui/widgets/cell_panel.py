"""The list of the blocks that share a cell of the pool's map."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.pool_view import facts_of_blocks, pool_view
from kvscope.replay.timeline import Moment
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.cell import NO_ROWS, cell_rows, title_words
from kvscope.tui.view.entries import Entry
from kvscope.tui.view.lines import Line, Span
from kvscope.tui.widgets.jump_panel import JumpPanel


class CellPanel(JumpPanel):
    """What each of the blocks is after the step. They stay the ones that were opened, whatever the map lists later."""

    def __init__(self, model: ScreenModel, block_ids: Sequence[int], *, is_ascii: bool) -> None:
        super().__init__(model, id="cell", is_ascii=is_ascii)
        self._block_ids = block_ids
        self._made: tuple[Moment, int, tuple[Line, Sequence[Entry]]] | None = None
        self.follow_block()

    def follow_block(self) -> None:
        """Makes the chosen block the current entry, where it is one of them."""
        if self.model.block_id in self._block_ids:
            self.current = self._block_ids.index(self.model.block_id)

    def head(self, width: int, height: int) -> Sequence[Line]:
        words = (Span(title_words(self._block_ids, self.model.step), "dim"),)
        right = (Span("enter opens its biography", "dim"),)
        return [self.title("CELL", words, width, right if width >= 90 else ()), self._rows(width)[0]]

    def entries(self, width: int) -> Sequence[Entry]:
        return self._rows(width)[1]

    def _rows(self, width: int) -> tuple[Line, Sequence[Entry]]:
        """Built once for a moment and a width."""
        timeline, moment = self.model.timeline, self.model.moment
        if timeline is None or moment is None:
            return NO_ROWS
        if self._made is None or self._made[0] is not moment or self._made[1] != width:
            blocks = facts_of_blocks(timeline, moment, self._block_ids)
            rows = cell_rows(blocks, pool_view(timeline, moment), width, self.model.glyphs)
            self._made = moment, width, rows
        return self._made[2]

    def walk(self, offset: int) -> None:
        super().walk(offset)
        self._choose()

    def choose_row(self, row: int) -> None:
        super().choose_row(row)
        self._choose()

    def _choose(self) -> None:
        """The current entry is the chosen block everywhere."""
        if self.target is not None:
            self.model.choose_block(int(self.target.key))
