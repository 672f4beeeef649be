"""The panels of the request's place."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.block_table import block_table, sharers
from kvscope.analysis.happenings import Happening, happenings
from kvscope.analysis.life import time_shares
from kvscope.analysis.request_view import RequestFacts, request_facts
from kvscope.analysis.token_view import request_text
from kvscope.replay.timeline import Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.lines import Line, Span, fit, put_behind, rule
from kvscope.tui.view.request import absent_lines, table_columns, table_lines, table_slots, table_title, text_lines
from kvscope.tui.view.request_place import (
    LABEL_COLUMNS,
    LifeFacts,
    fact_lines,
    happening_rows,
    life_lines,
    sharer_lines,
    time_lines,
)
from kvscope.tui.view.window import next_zoom
from kvscope.tui.widgets.panel import Panel


def facts_of(model: ScreenModel) -> RequestFacts | None:
    """Returns the facts of the selected request, None where there is none."""
    if model.timeline is None or model.moment is None or model.selected_id is None:
        return None
    return request_facts(model.timeline, model.moment, model.selected_id)


class OverviewPanel(Panel):
    """Facts, where its time went, its life."""

    SHOWS_LIFE = True

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="overview", is_ascii=is_ascii)

    @staticmethod
    def num_rows(columns: int, rows: int) -> int:
        """Returns the panel's height in a terminal: low ones do without the blank lines and the time."""
        return 13 if rows >= 32 else 8

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        facts = facts_of(model)
        if facts is None or model.timeline is None or model.moment is None:
            return [(Span(" no request is selected", "dim"),)]
        lines = fact_lines(facts, width, model.glyphs)
        shares = time_shares(model.timeline, model.moment, facts.request_id)
        is_roomy = height >= 13
        if is_roomy:
            lines.append(())
            lines += time_lines(shares, width, self.title, model.glyphs)
            lines.append(())
        if model.step < facts.arrival_step:
            return [*lines, *absent_lines(facts, model.step)]
        lines += life_lines(self._life(facts, model.timeline, width), width, self.title, model.glyphs)
        return lines[:height]

    def _life(self, facts: RequestFacts, timeline: Timeline, width: int) -> LifeFacts:
        """Its life from arrival to the step (or its end), in as many steps a cell as are needed."""
        model = self.model
        end = model.step if facts.finished_step is None else min(model.step, facts.finished_step)
        per_cell = 1
        while (end - facts.arrival_step) // per_cell + 2 > width - LABEL_COLUMNS:
            per_cell = next_zoom(per_cell, is_finer=False)
        start = facts.arrival_step - facts.arrival_step % per_cell
        deeds = model.life_deeds(start, end, per_cell)
        return LifeFacts(
            first_step=start,
            last_step=end,
            steps_per_cell=per_cell,
            deeds=deeds,
            num_blocks=model.held_blocks(start, end, per_cell),
            loads=timeline.summaries(start, len(deeds), per_cell),
        )


class TablePanel(Panel):
    """The block table, with the step since which each block is there."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="table", is_ascii=is_ascii, can_focus=True)

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        facts = facts_of(model)
        if facts is None or model.timeline is None or model.moment is None or model.config is None:
            return [self.title("BLOCK TABLE", (), width)]
        size = model.config.block_size
        right = (Span(f"{facts.num_blocks} blocks of {size} tokens", "dim"),)
        title = self.title("BLOCK TABLE", (), width, right)
        if not facts.num_blocks:
            return [title, (Span(" no blocks at this step", "dim"),), (), *self._text(facts, width - 2, height - 3)]
        blocks = model.selected_blocks
        chosen = model.block_id
        place = blocks.index(chosen) if chosen in blocks else None
        slots = table_slots(facts.num_blocks, facts.num_hit_blocks, height - 2, place)
        places = [slot for slot in slots if isinstance(slot, int)]
        rows = {row.index: row for row in block_table(model.timeline, model.moment, facts.request_id, places).rows}
        columns = table_columns(facts.num_blocks, rows, has_since=True)
        table = table_lines(
            slots, rows, columns, facts.num_hit_blocks, size, width - 1, chosen_block=chosen, glyphs=model.glyphs
        )
        return [title, table_title(columns), *table]

    def _text(self, facts: RequestFacts, width: int, height: int) -> list[Line]:
        """What it has generated, where it has no blocks to show it in."""
        timeline = self.model.timeline
        if timeline is None or not facts.num_output_tokens:
            return []
        start = facts.num_prompt_tokens
        stop = start + min(facts.num_output_tokens, height * width)
        text = request_text(timeline, facts.request_id, self.model.step, start, stop)
        return [(Span(" output", "dim"),), *text_lines(text, width, height - 1, is_end_shown=False)]


class HappeningsPanel(Panel):
    """Who shares its blocks, and what happened to it; `j k` walk, enter goes to the step."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="happenings", is_ascii=is_ascii, can_focus=True)
        self.current = -1
        self._happenings: list[Happening] = []

    @property
    def current_step(self) -> int | None:
        """The step of the chosen happening."""
        if not self._happenings:
            return None
        return self._happenings[min(max(self.current, 0), len(self._happenings) - 1)].step

    def move(self, num_rows: int) -> None:
        self.current = min(max(self.current + num_rows, 0), max(len(self._happenings) - 1, 0))
        self.invalidate()
        self.show()

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        facts = facts_of(model)
        if facts is None or model.timeline is None or model.moment is None:
            return ()
        lines: list[Line] = []
        found = sharers(model.moment, facts.request_id)
        if found:
            max_sharers = max(height // 4, 1)
            lines.append(rule(width, (Span("SHARES BLOCKS WITH", "bold"),), bar="─"))
            lines += [*sharer_lines(found, max_sharers), ()]
        self._happenings = happenings(model.timeline, model.moment, facts.request_id)
        lines.append(self.title("WHAT HAPPENED TO IT", (), width, (Span("enter jumps", "dim"),)))
        return [*lines, *self._told(width, height - len(lines))]

    def _told(self, width: int, height: int) -> list[Line]:
        """The happenings that fit, the latest ones or those around the chosen one."""
        rows: list[tuple[int, Line]] = []
        step_width = max((len(str(told.step)) for told in self._happenings), default=1) + 1
        for number, told in enumerate(self._happenings):
            rows += [(number, line) for line in happening_rows(told, width, step_width)]
        if self.has_focus and self.current >= 0:
            rows = [
                (n, put_behind((*line, Span(" " * width)), "row") if n == self.current else line) for n, line in rows
            ]
        if len(rows) <= height:
            return [line for _, line in rows]
        first = len(rows) - height + 1
        if self.has_focus and self.current >= 0:
            first = min(first, next(index for index, (number, _) in enumerate(rows) if number == self.current))
        more: Line = (Span(fit(f"… {first} lines before", width), "dim"),)
        shown = [line for _, line in rows[first : first + height - bool(first)]]
        return [more, *shown] if first else shown
