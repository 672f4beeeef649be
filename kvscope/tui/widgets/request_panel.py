"""The selected request: figures, hit, life, block table with the text of each block."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.block_table import BlockRow, block_table
from kvscope.analysis.request_view import RequestFacts, request_facts
from kvscope.analysis.text import visible
from kvscope.analysis.token_view import request_text
from kvscope.replay.timeline import Moment, Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.life import life_glyphs
from kvscope.tui.view.lines import EMPTY, Line, Span, fit, merge, rule
from kvscope.tui.view.request import (
    TableSlot,
    absent_lines,
    head_lines,
    table_columns,
    table_lines,
    table_slots,
    table_title,
    text_lines,
)
from kvscope.tui.widgets.panel import Panel

NUM_LINES_BEFORE_TABLE = 6
"""Title, three lines of figures, life, the table's title."""

NUM_OUTPUT_LINES = 4
"""The end of what it has generated so far, with a title."""

MIN_COLUMNS_FOR_SINCE = 60

MAX_TOKENS_A_LINE = 40
"""Tokens read for a line of output at least: more than a line of so many cells ever holds."""


class RequestPanel(Panel):
    """One request in a column; `j k` walk its block table."""

    IS_OF_STEP = True
    SHOWS_LIFE = True

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="request", is_ascii=is_ascii, can_focus=True)
        self._slots: Sequence[TableSlot] = ()

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        self._slots = ()
        if model.moment is None or model.timeline is None or model.selected_id is None:
            return [self.title("REQUEST", (), width), (Span("none selected", "dim"),)]
        facts = request_facts(model.timeline, model.moment, model.selected_id)
        if facts is None:
            return [self.title(visible(model.selected_id), (), width), (Span("not in this recording", "dim"),)]
        name = fit(visible(facts.request_id), max(width // 2, 8))
        title = self.title(name, (Span(facts.phase, "dim"),), width)
        if model.selected_id not in model.moment.state.requests:
            lines = [title, *absent_lines(facts, model.step)]
            if facts.finished_step is None:
                return lines
            return [*lines, EMPTY, *self._output(facts, width, height - len(lines) - 1, is_end_shown=False)]
        lines = [title, *head_lines(facts, width, model.glyphs), self._life(facts, width)]
        if not facts.num_blocks:
            lines += [(Span("no blocks", "dim"),), EMPTY]
            return [*lines, *self._text(facts, width, height - len(lines))]
        num_lines = NUM_OUTPUT_LINES
        if self.is_maximised:  # the table first, but never more than two thirds where there is text
            room = height - NUM_LINES_BEFORE_TABLE
            num_lines = max(room - facts.num_blocks - 2, room // 3, NUM_OUTPUT_LINES)
        text = self._output(facts, width, num_lines, is_end_shown=True)
        room = height - NUM_LINES_BEFORE_TABLE - (num_lines if text else 0)
        table = self._table(model.timeline, model.moment, facts, width, room)
        blank = [EMPTY] * (room + 1 - len(table))
        return [*lines, *table, *blank, *text]

    def _text(self, facts: RequestFacts, width: int, height: int) -> list[Line]:
        """What it has generated where it has, else its prompt."""
        output = self._output(facts, width, height, is_end_shown=False)
        if output or not facts.prompt:
            return output
        prompt = text_lines(facts.prompt, width, height - 1, is_end_shown=False)
        return [rule(width, (Span("prompt", "dim"),), bar="─"), *prompt]

    def _output(self, facts: RequestFacts, width: int, height: int, *, is_end_shown: bool) -> list[Line]:
        """What it has generated up to the step, under a title; nothing where it has not begun."""
        timeline = self.model.timeline
        if timeline is None or not facts.num_output_tokens or height < 2:
            return []
        start = facts.num_prompt_tokens
        stop = start + facts.num_output_tokens
        if is_end_shown:
            start = max(start, stop - height * max(MAX_TOKENS_A_LINE, width))
        else:
            stop = min(stop, start + height * max(MAX_TOKENS_A_LINE, width))
        text = request_text(timeline, facts.request_id, self.model.step, start, stop)
        lines = text_lines(text, width, height - 1, is_end_shown=is_end_shown)
        return [rule(width, (Span("output", "dim"),), bar="─"), *lines]

    def _table(self, timeline: Timeline, moment: Moment, facts: RequestFacts, width: int, height: int) -> list[Line]:
        model = self.model
        blocks = model.selected_blocks
        chosen = model.block_id if self.has_focus else None
        place = blocks.index(chosen) if chosen is not None and chosen in blocks else None
        slots = table_slots(facts.num_blocks, facts.num_hit_blocks, height, place)
        rows = shown_rows(timeline, moment, facts.request_id, slots)
        columns = table_columns(facts.num_blocks, rows, has_since=self.is_maximised and width >= MIN_COLUMNS_FOR_SINCE)
        block_size = model.config.block_size if model.config else 0
        self._slots = slots
        return [
            table_title(columns),
            *table_lines(
                slots,
                rows,
                columns,
                facts.num_hit_blocks,
                block_size,
                width,
                chosen_block=chosen,
                glyphs=model.glyphs,
            ),
        ]

    def _life(self, facts: RequestFacts, width: int) -> Line:
        """Its life on an axis of its own: from arrival to the step, as many steps a cell as are needed."""
        model = self.model
        num_steps = model.step - facts.arrival_step + 1
        per_cell = max(-(-num_steps // max(width, 1)), 1)
        if num_steps <= 0:
            return EMPTY
        deeds = model.life_deeds(facts.arrival_step, model.step, per_cell)
        chars, roles = life_glyphs(deeds, model.glyphs)
        return merge(Span(char, role) for char, role in zip(chars, roles, strict=True))

    def block_at(self, row: int) -> int | None:
        """Returns the block in a row of the widget."""
        place = row - NUM_LINES_BEFORE_TABLE
        if not 0 <= place < len(self._slots):
            return None
        slot = self._slots[place]
        blocks = self.model.selected_blocks
        return blocks[slot] if isinstance(slot, int) and slot < len(blocks) else None


def shown_rows(timeline: Timeline, moment: Moment, request_id: str, slots: Sequence[TableSlot]) -> dict[int, BlockRow]:
    """Returns the block table's rows of the places that are seen."""
    places = [slot for slot in slots if isinstance(slot, int)]
    return {row.index: row for row in block_table(timeline, moment, request_id, places).rows}
