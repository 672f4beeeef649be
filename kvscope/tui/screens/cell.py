"""A cell of the pool's map as a place, where a cell stands for several blocks: which they are, each with its life."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.place import Place
from kvscope.tui.widgets.cell_panel import CellPanel
from kvscope.tui.widgets.jump_panel import JumpPanel


class CellScreen(Place):
    """The blocks of one cell; `, ;` go through them as `j k` do."""

    IS_ABOUT_ONE = True
    KEYS = (
        ("← →", "step"),
        ("esc", "back"),
        ("j k", "block"),
        ("⏎", "biography"),
        ("n N", "event"),
        ("?", "help"),
    )

    def __init__(self, model: ScreenModel, block_ids: Sequence[int], *, is_ascii: bool) -> None:
        super().__init__(model, is_ascii=is_ascii)
        self.blocks = CellPanel(model, block_ids, is_ascii=is_ascii)

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.blocks
        yield self.footer

    @property
    def lists(self) -> Sequence[JumpPanel]:
        return (self.blocks,)

    def divide(self, columns: int, rows: int) -> None:
        self.blocks.styles.height = max(rows - 2, 1)
        self.blocks.invalidate()

    def show(self) -> None:
        self.header.places = (f"step {self.model.step}", "a cell of the pool")
        self.blocks.follow_block()  # it may have been chosen in a place above this one
        super().show()

    def action_block(self, offset: int) -> None:
        self.blocks.walk(offset)
