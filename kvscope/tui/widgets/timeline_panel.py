"""The timeline across the top of the screen; a click seeks."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.tui.model import ScreenModel
from kvscope.tui.view.lanes import lane_lines, page_words
from kvscope.tui.view.layout import TimelineLayout
from kvscope.tui.view.life import life_glyphs
from kvscope.tui.view.lines import EMPTY, Line, Span
from kvscope.tui.view.timeline import TimelineFacts, timeline_lines
from kvscope.tui.widgets.panel import Panel

WIDE_GUTTER = 19
"""Columns of the gutter where the timeline has the screen for itself: every name fits."""


class TimelinePanel(Panel):
    """When: tokens, blocks, marks and one request's life over a page of steps."""

    SHOWS_LIFE = True
    SHOWS_TIME = True
    FOCUS_ON_CLICK = False
    """A click seeks; what has the focus keeps it."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="timeline", is_ascii=is_ascii, can_focus=True)
        self.layout_rows: TimelineLayout | None = None

    @property
    def _gutter(self) -> int:
        return WIDE_GUTTER if self.is_maximised or self.layout_rows is None else self.layout_rows.gutter

    def build(self, width: int, height: int) -> Sequence[Line]:
        layout, model = self.layout_rows, self.model
        if not self.is_maximised and (layout is None or height != layout.rows):
            return ()
        num_columns = max(width - self._gutter, 1)
        window = model.turn_page(num_columns)
        if model.moment is None:
            blank: list[Line] = [EMPTY] * (height - 1)
            return [*blank, (Span(" no step yet", "dim"),)]
        life = ""
        roles: list[str] = []
        if self.is_maximised or (layout is not None and layout.life_rows):
            deeds = model.life_deeds(window.first_step, window.end_step - 1, window.steps_per_column)
            life, roles = life_glyphs(deeds, model.glyphs)
        missing = num_columns - len(life)
        facts = TimelineFacts(
            window=window,
            summaries=model.summaries(window),
            state=model.moment.state,
            step=model.step,
            selected_id=model.selected_id,
            life=life + " " * missing,
            life_roles=[*roles, *["dim"] * missing],
            marked_steps=() if model.mark_step is None else ((model.mark_step, "A"),),
            marks=model.marks,
        )
        if not self.is_maximised:
            assert layout is not None
            return self._focused(timeline_lines(facts, layout, width, model.glyphs))
        settings = model.config.settings if model.config is not None else {}
        max_num_seqs = int(settings.get("max_num_seqs", 0))
        title = self.title("TIMELINE", page_words(window, model.last_step), width)
        return [title, *lane_lines(facts, max_num_seqs, self._gutter, width, height - 1, model.glyphs)]

    def _focused(self, lines: list[Line]) -> list[Line]:
        """Reverses the first word while the panel has the focus: it has no title rule that could be heavy."""
        if not self.has_focus or not lines or not lines[0]:
            return lines
        name, *rest = lines[0]
        return [(name._replace(role=f"{name.role} reversed"), *rest), *lines[1:]]

    def step_at(self, column: int) -> int | None:
        """Returns the step under a column of the widget, None in the gutter."""
        window, gutter = self.model.window, self._gutter
        if window is None or column < gutter:
            return None
        return min(window.first_step + (column - gutter) * window.steps_per_column, self.model.last_step)
