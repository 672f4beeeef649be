"""The list of a search's hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvscope.tui.model import ScreenModel
from kvscope.tui.view.entries import Entry
from kvscope.tui.view.lines import Line
from kvscope.tui.view.search import hit_entries, progress_words, search_words
from kvscope.tui.widgets.jump_panel import JumpPanel

if TYPE_CHECKING:
    from kvscope.tui.finding import Finding


class HitsPanel(JumpPanel):
    """One line a hit."""

    def __init__(self, model: ScreenModel, finding: Finding, *, is_ascii: bool) -> None:
        super().__init__(model, id="hits", is_ascii=is_ascii)
        self._finding = finding
        self._made: tuple[tuple[int, int], Sequence[Entry]] | None = None
        self._shown_current = -1

    def head(self, width: int, height: int) -> Sequence[Line]:
        finding = self._finding
        text = "" if finding.query is None else finding.query.text
        right = progress_words(
            len(finding.hits),
            finding.num_searched,
            finding.num_steps,
            is_searching=finding.is_searching,
            is_full=finding.is_full,
            error=finding.error,
        )
        return [self.title("SEARCH", search_words(text, width // 2), width, right)]

    def entries(self, width: int) -> Sequence[Entry]:
        finding = self._finding
        if finding.current != self._shown_current:  # n and N take the chosen line along
            self._shown_current = self.current = finding.current
        key = (width, finding.version)
        if self._made is None or self._made[0] != key:
            self._made = (key, hit_entries(finding.hits, width, self.model.glyphs))
        return self._made[1]
