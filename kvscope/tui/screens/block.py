"""A block as a place: what it is at the step, and its biography."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from kvscope.tui.desk import OpenTimeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.place import Place
from kvscope.tui.widgets.block_panels import BlockFactsPanel, BlockLife, BlockLifePanel
from kvscope.tui.widgets.jump_panel import JumpPanel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

NUM_FACT_ROWS = 8
NUM_SHORT_FACT_ROWS = 7
SHORT_ROWS = 32


class BlockScreen(Place):
    """The chosen block; `, ;` choose the ones beside it."""

    IS_ABOUT_ONE = True
    KEYS = (
        ("← →", "step"),
        ("esc", "back"),
        ("j k", "move"),
        ("⏎", "go to"),
        (", ;", "block"),
        ("n N", "its event"),
        ("?", "help"),
    )

    def __init__(
        self, app: KvscopeApp, model: ScreenModel, open_timeline: OpenTimeline | None, *, is_ascii: bool
    ) -> None:
        super().__init__(model, is_ascii=is_ascii)
        self.life = BlockLife(app, open_timeline, self._more_to_show)
        self.facts = BlockFactsPanel(model, is_ascii=is_ascii)
        self.biography = BlockLifePanel(model, self.life, is_ascii=is_ascii)

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.facts
        yield self.biography
        yield self.footer

    @property
    def lists(self) -> Sequence[JumpPanel]:
        return (self.biography,)

    def divide(self, columns: int, rows: int) -> None:
        num_facts = NUM_SHORT_FACT_ROWS if rows < SHORT_ROWS else NUM_FACT_ROWS
        self.facts.styles.height = num_facts
        self.biography.styles.height = max(rows - num_facts - 2, 1)
        for panel in (self.facts, self.biography):
            panel.invalidate()

    def show(self) -> None:
        self.header.places = (f"step {self.model.step}", f"block {self.model.block_id}")
        if self.life.follow(self.model.block_id):
            self.biography.begin_anew()
        super().show()

    def action_event(self, direction: int) -> None:
        """Goes to what happened to this block next, or to the next hit of a search."""
        if self.kvscope.finding.is_target:
            super().action_event(direction)
            return
        at = self.model.wanted_step
        steps = [told.step for told in self.life.told]
        found = bisect_right(steps, at) if direction > 0 else bisect_left(steps, at) - 1
        if found == len(steps) and self.life.is_reading:
            self.kvscope.say(f"its biography is read as far as step {self.life.read_until:,}: look again in a moment")
        else:
            step = steps[found] if 0 <= found < len(steps) else None
            self.kvscope.navigation.go_to_happening(f"block {self.model.block_id}", step, direction)

    def end(self) -> None:
        self.life.leave()
