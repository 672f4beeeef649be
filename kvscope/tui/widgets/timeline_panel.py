"""The timeline across the top of the screen; a click seeks."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.tui.model import ScreenModel
from kvscope.tui.view.layout import TimelineLayout
from kvscope.tui.view.life import life_glyphs
from kvscope.tui.view.lines import EMPTY, Line, Span
from kvscope.tui.view.timeline import TimelineFacts, timeline_lines
from kvscope.tui.widgets.panel import Panel


class TimelinePanel(Panel):
    """When: tokens, blocks, marks and one request's life over a page of steps."""

    SHOWS_LIFE = True

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="timeline", is_ascii=is_ascii)
        self.layout_rows: TimelineLayout | None = None

    def build(self, width: int, height: int) -> Sequence[Line]:
        layout, model = self.layout_rows, self.model
        if layout is None or height != layout.rows:
            return ()
        num_columns = max(width - layout.gutter, 1)
        window = model.turn_page(num_columns)
        if model.moment is None:
            blank: list[Line] = [EMPTY] * (height - 1)
            return [*blank, (Span(" no step yet", "dim"),)]
        life = ""
        roles: list[str] = []
        if layout.life_rows:
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
        )
        return timeline_lines(facts, layout, width, model.glyphs)

    def step_at(self, column: int) -> int | None:
        """Returns the step under a column of the widget, None in the gutter."""
        window, layout = self.model.window, self.layout_rows
        if window is None or layout is None or column < layout.gutter:
            return None
        return min(window.first_step + (column - layout.gutter) * window.steps_per_column, self.model.last_step)
