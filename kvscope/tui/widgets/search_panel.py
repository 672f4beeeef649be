"""The list of a search's hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from kvscope.analysis.search import Hit
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.entries import Entry
from kvscope.tui.view.lines import Line
from kvscope.tui.view.search import hit_entries, progress_words, search_words
from kvscope.tui.widgets.jump_panel import JumpPanel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp
    from kvscope.tui.finding import Finding


class HitsPanel(JumpPanel):
    """One line a hit."""

    def __init__(self, model: ScreenModel, finding: Finding, *, is_ascii: bool) -> None:
        super().__init__(model, id="hits", is_ascii=is_ascii)
        self._finding = finding
        self._made: tuple[tuple[int, int], Sequence[Entry]] | None = None
        self._shown_current = -1
        self._chosen: Hit | None = None
        """What a key or a click has chosen: hits that are found before it do not move the choice."""

    def head(self, width: int, height: int) -> Sequence[Line]:
        finding = self._finding
        text = "" if finding.query is None else finding.query.text
        right = progress_words(
            len(finding.hits),
            finding.reached,
            finding.num_steps,
            is_searching=finding.is_searching,
            is_full=finding.is_full,
            error=finding.error,
            keys_to_go_on=cast("KvscopeApp", self.app).keys.shown("/ ⏎"),
        )
        return [self.title("SEARCH", search_words(text, width // 2), width, right)]

    def walk(self, offset: int) -> None:
        super().walk(offset)
        self._note_choice()

    def choose_row(self, row: int) -> None:
        super().choose_row(row)
        self._note_choice()

    def _note_choice(self) -> None:
        hits = self._finding.hits
        self._chosen = hits[self.current] if 0 <= self.current < len(hits) else None

    def entries(self, width: int) -> Sequence[Entry]:
        finding = self._finding
        if finding.current != self._shown_current:  # n and N take the chosen line along
            self._shown_current = self.current = finding.current
            self._chosen = None
        key = (width, finding.version)
        if self._made is None or self._made[0] != key:
            self._made = (key, hit_entries(finding.hits, width))
            if self._chosen is not None:
                self.current = finding.hits.index(self._chosen) if self._chosen in finding.hits else -1
        return self._made[1]
