"""The timeline: tokens, blocks, marks and the selected request's life over a page of steps.

It pages, never slides: the window stays where it is until the cursor leaves it. The gutter is legend and readout in
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.analysis.text import visible
from kvscope.replay.timeline import StepSummary
from kvscope.state import EngineState
from kvscope.tui.view.charts import Layer, stack_heights, stacked_rows
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.layout import TimelineLayout
from kvscope.tui.view.lines import Line, Span, fit, line_width, merge, pad_line, request_target, two_ends
from kvscope.tui.view.marks import NO_MARKS, Marks, counts_line, noted_steps
from kvscope.tui.view.window import Window, next_zoom

MANY_EVICTIONS = 4
"""From so many evicted blocks in a column on, its mark is filled."""

MIN_TICK_COLUMNS = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineFacts:
    """All that the timeline shows."""

    window: Window
    summaries: Sequence[StepSummary]
    state: EngineState
    step: int
    selected_id: str | None
    life: str
    """A glyph for each column of the window, see `kvscope.tui.view.life`."""
    life_roles: Sequence[str]
    marked_steps: Sequence[tuple[int, str]] = ()
    """Steps that bear a letter on the axis."""
    marks: Marks = NO_MARKS
    """What is noted on steps, which stands on the axis too."""


def timeline_lines(facts: TimelineFacts, layout: TimelineLayout, width: int, glyphs: Glyphs) -> list[Line]:
    """Returns the rows from the tokens down to the axis, each `width` cells wide."""
    columns = columns_of(facts)
    cursor = facts.window.column(facts.step) if facts.step in facts.window else None
    charts = [
        *token_rows(columns, layout.token_rows, cursor, glyphs),
        *block_rows(columns, facts.state, layout.block_rows, cursor, glyphs),
        *_mark_rows(columns, layout.mark_rows, cursor, glyphs),
    ]
    if layout.life_rows:
        charts.append(life_line(facts, cursor))
    charts.append(axis_line(facts, cursor, glyphs))
    gutters = _gutter(facts, layout, glyphs)
    return [
        pad_line((*pad_line(gutter, layout.gutter), *chart), width)
        for gutter, chart in zip(gutters, charts, strict=True)
    ]


def columns_of(facts: TimelineFacts) -> list[StepSummary | None]:
    """Returns the summary of each column of the page, None where the recording has none."""
    window = facts.window
    columns: list[StepSummary | None] = [None] * window.num_columns
    for summary in facts.summaries:
        column = window.column(summary.first_step)
        if 0 <= column < window.num_columns:
            columns[column] = summary
    return columns


def life_line(facts: TimelineFacts, cursor: int | None) -> Line:
    """Returns the life of the selected request."""
    return merge(
        Span(char, role, "cursor" if index == cursor else "")
        for index, (char, role) in enumerate(zip(facts.life, facts.life_roles, strict=True))
    )


def token_rows(columns: Sequence[StepSummary | None], num_rows: int, cursor: int | None, glyphs: Glyphs) -> list[Line]:
    """Returns the budget of each column: decode, drafts, prefill."""
    layers = (
        Layer("decode", glyphs.bar_decode),
        Layer("draft", glyphs.bar_draft),
        Layer("prefill", glyphs.bar_prefill),
    )
    heights = [
        stack_heights(
            (column.num_decode_tokens, column.num_draft_tokens, column.num_prefill_tokens),
            column.token_budget,
            num_rows,
        )
        if column
        else None
        for column in columns
    ]
    return stacked_rows(heights, layers, num_rows, glyphs, cursor_column=cursor)


def block_rows(
    columns: Sequence[StepSummary | None], state: EngineState, num_rows: int, cursor: int | None, glyphs: Glyphs
) -> list[Line]:
    """Returns the pool of each column: live, cached."""
    cached = "cached-bar" if glyphs.has_eighths else "cached"
    layers = (Layer("live", glyphs.bar_live), Layer(cached, glyphs.bar_cached))
    heights = [
        stack_heights((column.num_live_blocks, column.num_cached_blocks), state.num_usable_blocks, num_rows)
        if column
        else None
        for column in columns
    ]
    return stacked_rows(heights, layers, num_rows, glyphs, cursor_column=cursor)


def _decision_mark(column: StepSummary, glyphs: Glyphs) -> tuple[str, str] | None:
    if column.num_failed:
        return glyphs.mark_failed, "bad"
    if column.num_preemptions:
        return glyphs.mark_preempted, "preempted"
    if column.num_stalled:
        return glyphs.mark_stalled, "bad"
    return None


def _eviction_mark(column: StepSummary, glyphs: Glyphs) -> tuple[str, str] | None:
    if not column.num_evicted_blocks:
        return None
    return (glyphs.mark_evicted if column.num_evicted_blocks >= MANY_EVICTIONS else glyphs.mark_few_evicted), "evict"


def _progress_mark(column: StepSummary, glyphs: Glyphs) -> tuple[str, str] | None:
    if column.num_hits:
        return glyphs.mark_hit, "hit"
    if column.num_finished:
        return glyphs.mark_finished, "text"
    return None


def _mark_rows(columns: Sequence[StepSummary | None], num_rows: int, cursor: int | None, glyphs: Glyphs) -> list[Line]:
    rows: list[list[Span]] = [[] for _ in range(num_rows)]
    for index, column in enumerate(columns):
        behind = "cursor" if index == cursor else ""
        decision = _decision_mark(column, glyphs) if column else None
        eviction = _eviction_mark(column, glyphs) if column else None
        progress = _progress_mark(column, glyphs) if column else None
        marks = [decision or eviction, progress] if num_rows == 2 else [decision or progress or eviction]
        for row, mark in zip(rows, marks, strict=True):
            char, role = mark or (" ", "text")
            row.append(Span(char, role, behind))
    return [merge(row) for row in rows]


def axis_line(facts: TimelineFacts, cursor: int | None, glyphs: Glyphs) -> Line:
    """Returns the steps below their columns, the cursor's reversed, and what is noted on them."""
    window = facts.window
    cells: list[Span] = [Span(" ", "dim") for _ in range(window.num_columns)]
    noted = {window.column(step): glyph for step, glyph in noted_steps(facts.marks, glyphs) if step in window}
    label = f"{noted.get(cursor, ' ')}{facts.step} " if cursor is not None else ""
    start = max(min((cursor or 0) - len(label) // 2, window.num_columns - len(label)), 0)
    taken = range(start - 1, start + len(label) + 1) if label else range(0)
    interval = tick_interval(window.steps_per_column)
    first_tick = -(-window.first_step // interval) * interval
    for step in range(first_tick, window.end_step, interval):
        text = f"╵{step}"
        column = window.column(step)
        reach = range(column, column + len(text))
        if reach.stop <= window.num_columns and not any(index in taken for index in reach):
            for offset, char in enumerate(text if noted.keys().isdisjoint(reach) else text[:1]):
                cells[column + offset] = Span(char, "rule" if offset == 0 else "dim")
    for column, glyph in noted.items():
        cells[column] = Span(glyph, "strong")
    for step, letter in facts.marked_steps:
        if step in window:
            cells[window.column(step)] = Span(letter, "reversed")
    for offset, char in enumerate(label):
        if start + offset < window.num_columns:
            cells[start + offset] = Span(char, "reversed bold")
    return merge(cells)


def tick_interval(steps_per_column: int) -> int:
    """Returns the round number of steps between two ticks."""
    interval = 1
    while interval // steps_per_column < MIN_TICK_COLUMNS:
        interval = next_zoom(interval, is_finer=False)
    return interval


def _gutter(facts: TimelineFacts, layout: TimelineLayout, glyphs: Glyphs) -> list[Line]:
    width = layout.gutter - 1
    state = facts.state
    tokens, live, cached = state.step_tokens, state.num_live_blocks, state.num_cached_free_blocks
    used, pool = f"{tokens.total}/{state.token_budget}", f"{live}/{state.num_usable_blocks}"
    if layout.token_rows == 1:
        rows: list[Line] = [_readout("tok", used, width), _readout("blk", pool, width)]
    else:
        rows = [
            _readout("TOKENS", used, width),
            _legend(glyphs.bar_prefill, "prefill", "prefill", str(tokens.prefill), width),
            _decode_legend(state, layout.token_rows, width, glyphs),
        ]
        if layout.token_rows > 3:
            rows.append(_legend(glyphs.bar_draft, "draft", "draft", str(tokens.draft), width))
        rows += [
            _readout("BLOCKS", pool, width),
            _legend(glyphs.bar_live, "live", "live", str(live), width),
            _legend(glyphs.cached, "cached", "cached", str(cached), width),
        ]
        if layout.block_rows > 3:
            rows.append(_legend(glyphs.free, "free", "free", str(state.num_free_blocks - cached), width))
    marks = [
        (glyphs.mark_preempted, "preempted"),
        (glyphs.mark_evicted, "evict"),
        (glyphs.mark_hit, "hit"),
        (glyphs.mark_finished, "text"),
    ]
    if layout.mark_rows == 1:
        rows.append(tuple(Span(char, role) for char, role in marks))
    else:
        names = ("preempt ", "evict", "hit     ", "done")
        cells = [(Span(char, role), Span(f" {name}", "dim")) for (char, role), name in zip(marks, names, strict=True)]
        rows += [(*cells[0], *cells[1]), (*cells[2], *cells[3])]
    if layout.life_rows:
        rows.append(selected_gutter(facts.selected_id, width))
    rows.append(_axis_legend(facts, layout, width, glyphs))
    return rows


def _axis_legend(facts: TimelineFacts, layout: TimelineLayout, width: int, glyphs: Glyphs) -> Line:
    """The zoom, and how many marks of each kind the recording has."""
    per_column = facts.window.steps_per_column
    counts = counts_line(facts.marks, glyphs)
    zoom = f"{per_column} step{'s' * (per_column > 1)}/col"
    if layout.token_rows == 1 or len(zoom) + 1 + line_width(counts) > width:
        zoom = f"×{per_column}"
    return two_ends((Span(zoom, "dim"),), counts, width) if counts else (Span(zoom, "dim"),)


def _readout(name: str, figure: str, width: int) -> Line:
    return two_ends((Span(name, "bold"),), (Span(figure, "bold"),), width)


def _legend(patch: str, role: str, name: str, figure: str, width: int) -> Line:
    return two_ends((Span(patch, role), Span(f" {name}", "dim")), (Span(figure, "text"),), width)


def _decode_legend(state: EngineState, token_rows: int, width: int, glyphs: Glyphs) -> Line:
    tokens = state.step_tokens
    left: Line = (Span(glyphs.bar_decode, "decode"), Span(" decode", "dim"))
    if token_rows == 3 and tokens.draft:  # drafts have no row of their own here
        left = (*left, Span(f" {glyphs.draft}{tokens.draft}", "draft"))
    return two_ends(left, (Span(str(tokens.decode)),), width)


def selected_gutter(selected_id: str | None, width: int) -> Line:
    """Returns whose life stands behind it."""
    if selected_id is None:
        return (Span("no request", "dim"),)
    target = request_target(selected_id)
    return pad_line(
        (Span(f" {fit(visible(selected_id), width - 2)}", "bold", "selected", target),), width, on="selected"
    )
