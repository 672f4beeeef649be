"""The request column: its figures, its hit, its life in one line, its block table with the text of each block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvscope.analysis.block_table import BlockRow
from kvscope.analysis.pool_view import BlockChange
from kvscope.analysis.request_view import RequestFacts
from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import wrap
from kvscope.analysis.text import cell_width
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import (
    Line,
    Span,
    Target,
    block_target,
    cut_line,
    fit,
    line_width,
    put_behind,
    sentence_line,
    step_target,
)
from kvscope.tui.view.pool_map import CHANGE_ROLES
from kvscope.tui.view.windowing import Gap, Slot, head_and_tail


@dataclass(frozen=True, slots=True)
class HitEnd:
    """The line between the blocks that were hit and those that were computed."""


TableSlot = Slot | HitEnd


def table_slots(num_blocks: int, num_hit_blocks: int, height: int, selected: int | None) -> list[TableSlot]:
    """Returns which rows of a block table stand in `height` lines; where the hit ends inside them, it has a line."""
    has_end = 0 < num_hit_blocks < num_blocks
    slots: list[TableSlot] = [*head_and_tail(num_blocks, height - has_end, selected)]
    if has_end:
        for place, slot in enumerate(slots):
            if slot == num_hit_blocks:
                slots.insert(place, HitEnd())
                return slots
        slots = [*head_and_tail(num_blocks, height, selected)]
    return slots


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """Widths of a block table's columns."""

    index: int
    block: int
    ref: int
    since: int
    """0: the column is not there."""

    @property
    def before_text(self) -> int:
        since = self.since + 1 if self.since else 0
        return self.index + 1 + 1 + self.block + 1 + self.ref + 1 + since


def table_columns(num_blocks: int, rows: Mapping[int, BlockRow], *, has_since: bool) -> TableColumns:
    return TableColumns(
        index=max(len(str(max(num_blocks - 1, 0))), 2),
        block=max(5, *(len(str(row.block_id)) for row in rows.values())) if rows else 5,
        ref=max(3, *(len(str(row.ref_cnt)) + 1 for row in rows.values())) if rows else 3,
        since=max(5, *(len(str(row.since_step)) for row in rows.values())) if has_since and rows else 0,
    )


def table_title(columns: TableColumns) -> Line:
    since = f" {'since':>{columns.since}}" if columns.since else ""
    text = f"{'i':>{columns.index}}  {'block':>{columns.block}} {'ref':>{columns.ref}}{since} text"
    return (Span(text, "dim"),)


def table_lines(
    slots: list[TableSlot],
    rows: Mapping[int, BlockRow],
    columns: TableColumns,
    num_hit_blocks: int,
    block_size: int,
    width: int,
    *,
    chosen_block: int | None,
    glyphs: Glyphs,
) -> list[Line]:
    """Returns a line for each slot; `rows` by their place in the table."""
    shown = [slot for slot in slots if isinstance(slot, int)]
    is_end_shown = any(isinstance(slot, HitEnd) for slot in slots)
    lines: list[Line] = []
    for slot in slots:
        match slot:
            case HitEnd():
                lines.append(_hit_end(num_hit_blocks * block_size, width))
            case Gap():
                where = ""
                if not is_end_shown and 0 < num_hit_blocks < max(shown, default=0) + 1:
                    where = f", hit ends at {num_hit_blocks}"
                text = " " * (columns.index + 1) + f"… {slot.num_rows} more{where}"
                lines.append((Span(fit(text, width), "dim"),))
            case _:
                lines.append(_table_row(rows[slot], columns, width, chosen_block, glyphs))
    return lines


def _hit_end(num_hit_tokens: int, width: int) -> Line:
    text = " hit ends, computed from here "
    left = 6 if width >= cell_width(text) + 8 else 0
    line: Line = (Span("┄" * left, "hit"), Span(text, "hit"), Span("┄" * width, "hit"))
    return cut_line(line, width, ellipsis="")


def _table_row(row: BlockRow, columns: TableColumns, width: int, chosen_block: int | None, glyphs: Glyphs) -> Line:
    has_event = row.change is not BlockChange.NONE and row.change is not BlockChange.RELEASED
    spans: list[Span] = [
        Span(f"{row.index:>{columns.index}}", "dim"),
        Span(glyphs.change(row.change), CHANGE_ROLES[row.change]) if has_event else Span(" "),
        Span(" "),
        Span(f"{row.block_id:>{columns.block}}", "bold", "", block_target(row.block_id)),
        Span(" "),
        Span(f"{f'×{row.ref_cnt}' if row.ref_cnt > 1 else '':>{columns.ref}}", "shared"),
    ]
    if columns.since:
        step = "" if row.since_step is None else str(row.since_step)
        target = None if row.since_step is None else step_target(row.since_step)
        spans += [Span(" "), Span(f"{step:>{columns.since}}", "dim", "", target)]
    role = "text" if row.is_published else "dim"
    spans += [Span(" "), Span(fit(row.text, max(width - columns.before_text, 0)), role)]
    line = tuple(spans)
    if row.block_id == chosen_block:
        line = put_behind((*line, Span(" " * (width - line_width(line)))), "row")
    return line


HEAD_ROWS = 3
"""Lines of `head_lines`."""


def head_lines(facts: RequestFacts, width: int, glyphs: Glyphs) -> list[Line]:
    """Returns three lines: progress in tokens and blocks; lengths and arrival; the hit or why there was none.

    Where the figures are long, words of the first two make room: no figure is cut.
    """
    return [
        _roomy(_progress(facts, glyphs), width, {" computed": ""}),
        _roomy(_lengths(facts), width, {"  output ": " out ", "  since ": " since ", "prompt ": ""}),
        hit_line(facts, width, glyphs),
    ]


def _roomy(line: Line, width: int, shorter: Mapping[str, str]) -> Line:
    """Shortens one word of a line after the other, until it fits."""
    for word, less in shorter.items():
        if line_width(line) <= width:
            break
        line = tuple(span._replace(text=less) if span.text == word else span for span in line)
    return cut_line(line, width)


def _progress(facts: RequestFacts, glyphs: Glyphs) -> Line:
    first: list[Span] = [
        Span(f"{facts.num_computed_tokens}/{facts.num_tokens}", "bold"),
        Span(" computed", "dim"),
    ]
    if facts.share is not None:
        own = facts.share.num_tokens - facts.share.num_draft_tokens
        first.append(Span(f" +{own}", "bold prefill" if facts.share.is_prefill else "bold decode"))
        if facts.share.num_draft_tokens:
            first.append(Span(f"{glyphs.draft}{facts.share.num_draft_tokens}", "draft"))
    first += [Span(f"  {facts.num_blocks}", "bold"), Span(" blocks", "dim")]
    if facts.num_preemptions:
        times = "once" if facts.num_preemptions == 1 else f"{facts.num_preemptions}×"
        first.append(Span(f"  {glyphs.mark_preempted} {times}", "preempted"))
    return tuple(first)


def _lengths(facts: RequestFacts) -> Line:
    return (
        Span("prompt ", "dim"),
        Span(str(facts.num_prompt_tokens)),
        Span("  output ", "dim"),
        Span(str(facts.num_output_tokens)),
        Span(f"/{facts.max_tokens}", "dim"),
        Span("  since ", "dim"),
        Span(str(facts.arrival_step), "text", "", step_target(facts.arrival_step)),
    )


def hit_line(facts: RequestFacts, width: int, glyphs: Glyphs) -> Line:
    """Returns what it took over from the cache, or why it took nothing."""
    if not facts.hit:
        return (Span("not admitted yet", "dim"),) if facts.first_admitted_step is None else ()
    glyph = Span(f"{glyphs.hit} ", "hit") if facts.num_hit_tokens else Span("· ", "dim")
    return cut_line((glyph, *sentence_line(facts.hit)), width)


def absent_lines(facts: RequestFacts, step: int) -> list[Line]:
    """Returns what stands in the column of a request that does not live at this step; the step is a jump."""
    if step < facts.arrival_step:
        target = facts.arrival_step
        return [(Span("arrives at step ", "dim"), Span(str(target), "bold", "", Target("step", str(target))))]
    if facts.finished_step is not None:
        target = facts.finished_step
        reason = f" ({facts.finish_reason})" if facts.finish_reason else ""
        return [
            (
                Span("finished at step ", "dim"),
                Span(str(target), "bold", "", Target("step", str(target))),
                Span(reason, "dim"),
            )
        ]
    return []


def text_lines(text: str, width: int, height: int, *, is_end_shown: bool) -> list[Line]:
    """Returns a text wrapped into at most `height` lines: its end, behind an ellipsis, or its beginning before one."""
    rows = [row for row in wrap((WordSpan(text),), width) if row]
    lines: list[Line] = [(Span("".join(span.text for span in row)),) for row in rows]
    if len(lines) <= height or height <= 0:
        return lines[: max(height, 0)]
    if is_end_shown:
        shown = lines[-height:]
        return [(Span(("…" + shown[0][0].text)[:width], "text"),), *shown[1:]]
    return [*lines[: height - 1], (Span(fit(lines[height - 1][0].text, width - 1, "") + "…"),)]
