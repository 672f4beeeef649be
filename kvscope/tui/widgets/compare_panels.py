"""The panels of the place "compare". The comparison is read in a thread; the one before stays until it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import wrap
from kvscope.analysis.step_difference import StepDifference, step_difference
from kvscope.tui.desk import Asker, WatchedTimeline
from kvscope.tui.keymap import Keys
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.compare import (
    between_line,
    figure_entries,
    happening_entries,
    pool_lines,
    pool_title,
    request_entries,
    steps_line,
)
from kvscope.tui.view.entries import Entry, heading
from kvscope.tui.view.layout import SHORT_ROWS
from kvscope.tui.view.lines import EMPTY, Line, Span, line_width, rule, sentence_line
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class Comparison:
    """The marked step and the one that is looked at, side by side."""

    def __init__(self, model: ScreenModel) -> None:
        self.model = model
        self._asker: Asker[StepDifference] | None = None
        self._keys: Keys | None = None

    def attach(self, app: KvscopeApp, changed: Callable[[], None]) -> None:
        """Makes it able to ask; `changed` is called when there is more to show."""
        self._asker = Asker(app, changed)
        self._keys = app.keys

    @property
    def steps(self) -> tuple[int, int] | None:
        """The two steps, the earlier one first; None where they are one, or none is marked."""
        mark, step = self.model.mark_step, self.model.step
        return None if mark is None or step < 0 or mark == step else (min(mark, step), max(mark, step))

    def ask(self) -> None:
        """Asks for the comparison."""
        if self._asker is not None and self.steps is not None:
            self._asker.ask(self.steps, partial(_compared, steps=self.steps))

    @property
    def found(self) -> StepDifference | None:
        """The newest comparison, maybe of the step before (see `is_old`), or the two states while the rest is read."""
        asker = self._asker
        if asker is None or self.steps is None:
            return None
        return asker.early(StepDifference) or asker.value

    @property
    def is_old(self) -> bool:
        """What is shown is not of these two steps yet."""
        found = self.found
        return found is not None and (found.step_a, found.step_b) != self.steps

    @property
    def waiting_words(self) -> str:
        """What is shown where there is no comparison yet."""
        if self.steps is None:
            text = "This is step A. Move with {← → n N} or {:} and what changed is shown here."
            return "" if self._keys is None else self._keys.filled(text)
        asker = self._asker
        if asker is None:
            return ""
        if asker.error:
            return asker.error
        return "…" if asker.watch is None else f"reading step {asker.watch.step:,} of {self.steps[1]:,} …"

    def leave(self) -> None:
        """Leaves the question under way."""
        if self._asker is not None:
            self._asker.leave()


def _compared(timeline: WatchedTimeline, steps: tuple[int, int]) -> StepDifference:
    def tell_early(found: StepDifference) -> None:
        timeline.early = found

    return step_difference(timeline, *steps, tell_early)


class StepsPanel(Panel):
    """Which steps, how far apart, and what happened in between, counted."""

    def __init__(self, comparison: Comparison, *, is_ascii: bool) -> None:
        super().__init__(comparison.model, id="steps", is_ascii=is_ascii)
        self.comparison = comparison

    def build(self, width: int, height: int) -> Sequence[Line]:
        model, comparison = self.model, self.comparison
        if model.mark_step is None:
            key = cast("KvscopeApp", self.app).keys.shown("d")
            return [(Span(f" no step is marked: {key} marks one as A", "dim"),)]
        steps = comparison.steps
        found = comparison.found
        if steps is None or found is None:
            mark: Line = (Span(" A ", "bold", "chip-held"), Span(f" step {model.mark_step}  ", "bold"))
            words = (WordSpan(comparison.waiting_words, "dim"),)
            indent = line_width(mark)
            rows = [sentence_line(row) for row in wrap(words, max(width - indent, 8))]
            return [(*(mark if not index else (Span(" " * indent),)), *row) for index, row in enumerate(rows)][:height]
        fresh = None if comparison.is_old else found
        first = steps_line(*steps, model.mark_step, fresh, width)
        if fresh is None:
            first = (*first, Span(f"   {comparison.waiting_words}", "dim"))
        between = between_line(found, width, comparison.waiting_words)
        lines = [first, EMPTY, between, EMPTY] if height > 3 else [first, between]
        return lines[:height]


class DifferencesPanel(JumpPanel):
    """Figures and requests, changed ones first."""

    def __init__(self, comparison: Comparison, *, is_ascii: bool) -> None:
        super().__init__(comparison.model, id="differences", is_ascii=is_ascii)
        self.comparison = comparison

    def head(self, width: int, height: int) -> Sequence[Line]:
        return [self.title("FIGURES", (), width, (Span("changed first", "dim"),))]

    def entries(self, width: int) -> Sequence[Entry]:
        found = self.comparison.found
        if found is None:
            return ()
        shows_equal = self.app.size.height >= SHORT_ROWS
        title = rule(width, (Span("REQUESTS", "bold"),), (Span("changed first", "dim"),), bar="─")
        entries = figure_entries(found, width, shows_equal=shows_equal)
        if shows_equal:
            entries.append(heading(EMPTY))
        return [*entries, heading(title), *request_entries(found.requests, width)]


class BetweenPanel(JumpPanel):
    """The pool, B against A, and what was decided in between."""

    def __init__(self, comparison: Comparison, *, is_ascii: bool) -> None:
        super().__init__(comparison.model, id="between", is_ascii=is_ascii)
        self.comparison = comparison

    def head(self, width: int, height: int) -> Sequence[Line]:
        found = self.comparison.found
        if found is None:
            return [self.title("POOL, B AGAINST A", (), width)]
        is_short = height < SHORT_ROWS - 4
        pool = pool_lines(found, width, 5 if is_short else max(height // 3, 6), self.model.glyphs)
        told = rule(width, (Span("WHAT HAPPENED IN BETWEEN", "bold"),), (Span("the rarest first", "dim"),), bar="─")
        title = self.title("POOL, B AGAINST A", (), width, pool_title(found))
        return [title, *pool, *([] if is_short else [EMPTY]), told]

    def entries(self, width: int) -> Sequence[Entry]:
        found = self.comparison.found
        return () if found is None else happening_entries(found, width, self.comparison.waiting_words)
