"""The timeline with the screen for itself: each kind of figure and of mark has a lane of its own.

The lanes share the page, the cursor and the axis of the small one (`kvscope.tui.view.timeline`), which stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvscope.analysis.sentences import milliseconds
from kvscope.replay.timeline import StepSummary
from kvscope.tui.view.charts import Layer, stack_heights, stacked_rows
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import EMPTY, Line, Span, merge, pad_line, two_ends
from kvscope.tui.view.marks import counts_line
from kvscope.tui.view.timeline import (
    TimelineFacts,
    axis_line,
    block_rows,
    columns_of,
    life_line,
    selected_gutter,
    token_rows,
)
from kvscope.tui.view.window import Window

WEIGHTS = (4, 3, 2, 2, 2)
"""How the rows are divided between tokens, blocks, running, waiting and step time."""

NUM_OTHER_ROWS = 8
"""Six lanes of marks, the life and the axis."""


@dataclass(frozen=True, slots=True)
class _Mark:
    name: str
    number: Callable[[StepSummary], int]
    glyph: Callable[[Glyphs], str]
    role: str


MARKS = (
    _Mark("failed", lambda column: column.num_failed, lambda glyphs: glyphs.mark_failed, "bad"),
    _Mark("preempted", lambda column: column.num_preemptions, lambda glyphs: glyphs.mark_preempted, "preempted"),
    _Mark("stalled", lambda column: column.num_stalled, lambda glyphs: glyphs.mark_stalled, "bad"),
    _Mark("evicted", lambda column: column.num_evicted_blocks, lambda glyphs: glyphs.mark_evicted, "evict"),
    _Mark("hit", lambda column: column.num_hits, lambda glyphs: glyphs.mark_hit, "hit"),
    _Mark("finished", lambda column: column.num_finished, lambda glyphs: glyphs.mark_finished, "text"),
)


def chart_heights(height: int) -> list[int]:
    """Returns the rows of the five charts in `height` rows, marks, life and axis left out; at least one each."""
    room = max(height - NUM_OTHER_ROWS, len(WEIGHTS))
    rows = [max(room * weight // sum(WEIGHTS), 1) for weight in WEIGHTS]
    rows[0] += max(room - sum(rows), 0)
    return rows


def page_words(window: Window, last_step: int) -> tuple[Span, ...]:
    """Returns which steps the page shows, and how many a column."""
    end = min(window.end_step - 1, max(last_step, 0))
    per_column = window.steps_per_column
    return (Span(f"steps {window.first_step} to {end}, {per_column} step{'s' * (per_column > 1)} a column", "dim"),)


def lane_lines(
    facts: TimelineFacts, max_num_seqs: int, gutter: int, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Returns `height` rows: tokens, blocks, running, waiting, step time, a lane for each kind of mark, life, axis."""
    columns = columns_of(facts)
    cursor = facts.window.column(facts.step) if facts.step in facts.window else None
    rows = chart_heights(height)
    here = None if cursor is None else columns[cursor]
    state, room = facts.state, gutter - 1
    tokens = state.step_tokens
    lanes: list[tuple[list[Line], list[Line]]] = [
        (
            [
                _figure("TOKENS", f"{tokens.total}/{state.token_budget}", room),
                _legend(glyphs.bar_prefill, "prefill", "prefill", tokens.prefill, room),
                _legend(glyphs.bar_decode, "decode", "decode", tokens.decode, room),
                _legend(glyphs.bar_draft, "draft", "draft", tokens.draft, room),
            ],
            token_rows(columns, rows[0], cursor, glyphs),
        ),
        (
            [
                _figure("BLOCKS", f"{state.num_live_blocks}/{state.num_usable_blocks}", room),
                _legend(glyphs.bar_live, "live", "live", state.num_live_blocks, room),
                _legend(glyphs.cached, "cached", "cached", state.num_cached_free_blocks, room),
                _legend(glyphs.free, "free", "free", state.num_free_blocks - state.num_cached_free_blocks, room),
            ],
            block_rows(columns, state, rows[1], cursor, glyphs),
        ),
    ]
    highest = max((column.num_running for column in columns if column), default=0)
    limit = max_num_seqs or highest
    of_limit = f"/{max_num_seqs}" if max_num_seqs else ""
    lanes.append(
        (
            [_figure("RUNNING", f"{len(state.running)}{of_limit}", room), _most(str(highest), room)],
            _chart(columns, lambda column: column.num_running, limit, rows[2], cursor, glyphs),
        )
    )
    highest = max((column.num_waiting for column in columns if column), default=0)
    lanes.append(
        (
            [_figure("WAITING", str(len(state.waiting)), room), _most(str(highest), room)],
            _chart(columns, lambda column: column.num_waiting, highest, rows[3], cursor, glyphs),
        )
    )
    longest = max((column.step_ns for column in columns if column), default=0)
    time = "" if here is None or not here.step_ns else milliseconds(here.step_ns)
    lanes.append(
        (
            [_figure("STEP TIME", time, room), _most(milliseconds(longest) if longest else "no clock", room)],
            _chart(columns, lambda column: column.step_ns, longest, rows[4], cursor, glyphs),
        )
    )
    lanes += [
        ([_mark_gutter(mark, columns, room, glyphs)], [_mark_lane(mark, columns, cursor, glyphs)]) for mark in MARKS
    ]
    lanes.append(([selected_gutter(facts.selected_id, room)], [life_line(facts, cursor)]))
    lanes.append(([_axis_gutter(facts, room, glyphs)], [axis_line(facts, cursor, glyphs)]))
    lines: list[Line] = []
    for gutters, chart in lanes:
        shown = [*gutters, *[EMPTY] * len(chart)]
        lines += [pad_line((*pad_line(left, gutter), *row), width) for left, row in zip(shown, chart, strict=False)]
    return lines[-height:] if len(lines) > height else lines


def _chart(
    columns: Sequence[StepSummary | None],
    value: Callable[[StepSummary], int],
    limit: int,
    num_rows: int,
    cursor: int | None,
    glyphs: Glyphs,
) -> list[Line]:
    heights = [stack_heights((value(column),), limit, num_rows) if column else None for column in columns]
    return stacked_rows(heights, (Layer("dim", glyphs.bar_live),), num_rows, glyphs, cursor_column=cursor)


def _mark_lane(mark: _Mark, columns: Sequence[StepSummary | None], cursor: int | None, glyphs: Glyphs) -> Line:
    char = mark.glyph(glyphs)
    return merge(
        Span(char if column and mark.number(column) else " ", mark.role, "cursor" if index == cursor else "")
        for index, column in enumerate(columns)
    )


def _mark_gutter(mark: _Mark, columns: Sequence[StepSummary | None], width: int, glyphs: Glyphs) -> Line:
    """The glyph, what it means, and how many there are on the page."""
    number = sum(mark.number(column) for column in columns if column)
    return _legend(mark.glyph(glyphs), mark.role if number else "dim", mark.name, number, width)


def _axis_gutter(facts: TimelineFacts, width: int, glyphs: Glyphs) -> Line:
    """The zoom, and how many marks of each kind the recording has."""
    return two_ends((Span(f"×{facts.window.steps_per_column}", "dim"),), counts_line(facts.marks, glyphs), width)


def _figure(name: str, figure: str, width: int) -> Line:
    return two_ends((Span(name, "bold"),), (Span(figure, "bold"),), width)


def _most(figure: str, width: int) -> Line:
    return two_ends((Span("most", "dim"),), (Span(figure, "dim"),), width)


def _legend(patch: str, role: str, name: str, number: int, width: int) -> Line:
    return two_ends((Span(patch, role), Span(f" {name}", "dim")), (Span(f"{number:,}"),), width)
