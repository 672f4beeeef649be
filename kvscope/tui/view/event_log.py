"""The lines of the event log: a line an event, the chosen one in full, and the kinds to choose from."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.event_log import KINDS, ROUTINE_KINDS, EventFilter, LoggedEvent
from kvscope.analysis.event_subjects import field_words
from kvscope.analysis.event_words import event_sentence
from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import dim, say, wrap
from kvscope.analysis.text import visible
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import (
    EMPTY,
    Line,
    Span,
    cut_line,
    fit,
    pad,
    pad_line,
    put_behind,
    sentence_line,
    step_target,
)
from kvscope.tui.view.step import TONE_ROLES, sentence_rows

KIND_COLUMNS = max(len(kind.__name__) for kind in KINDS)
NARROW_COLUMNS = 100
MAX_NAMED_KINDS = 2


def filter_words(chosen: EventFilter, width: int) -> tuple[Span, ...]:
    """Returns what is listed: of which kinds, of whom."""
    names = [kind.__name__ for kind in KINDS if kind in chosen.kinds]
    if len(names) == len(KINDS):
        kinds = "all kinds"
    elif chosen.kinds == frozenset(KINDS) - ROUTINE_KINDS:
        kinds = "decisions"
    elif len(names) <= MAX_NAMED_KINDS:
        kinds = " and ".join(names)
    else:
        kinds = f"{len(names)} of {len(KINDS)} kinds"
    whose = "" if chosen.request_id is None else f" of {fit(visible(chosen.request_id), max(width // 4, 8))}"
    return (Span(kinds, "dim" if len(names) == len(KINDS) else "bold"), Span(whose, "bold"))


def log_lines(
    lines: Sequence[LoggedEvent],
    current: int,
    standing: tuple[int, int] | None,
    width: int,
    step_columns: int,
    glyphs: Glyphs,
    *,
    is_focused: bool,
) -> list[Line]:
    """Returns a line for each event; `current` is the chosen one among them.

    A step's number stands before its first line. `standing` is the event behind which the screen shows the state.
    """
    number_columns = max((len(str(line.num_events)) for line in lines), default=1)
    rows: list[Line] = []
    last_step: int | None = None
    for index, line in enumerate(lines):
        row = _log_line(line, width, step_columns, number_columns, is_first=line.step != last_step)
        last_step = line.step
        if line.place == standing:
            row = (Span(glyphs.selected, "text"), *row[1:])
        if index == current and is_focused:
            row = put_behind(pad_line(row, width), "row")
        rows.append(row)
    return rows


def _log_line(line: LoggedEvent, width: int, step_columns: int, number_columns: int, *, is_first: bool) -> Line:
    sentence = event_sentence(line.event)
    role = TONE_ROLES[sentence.tone]
    step = f"{line.step:>{step_columns}}" if is_first else " " * step_columns
    return cut_line(
        (
            Span(" "),
            Span(step, "bold", "", step_target(line.step)),
            Span(f" {line.number:>{number_columns}}  ", "dim"),
            Span(pad(type(line.event).__name__, KIND_COLUMNS) + " ", "text"),
            Span(f"{sentence.glyph} ", f"bold {role}"),
            *sentence_line(sentence.spans),
        ),
        width,
    )


def event_lines(line: LoggedEvent | None, width: int, height: int) -> list[Line]:
    """Returns the chosen event in full: its words, then its fields as they were recorded."""
    if line is None:
        return [EMPTY] * height
    rows = sentence_rows(event_sentence(line.event), width)
    parts: list[WordSpan] = []
    for name, value in field_words(line.event):
        parts += [dim(f"{name} "), WordSpan(value), WordSpan("  ")]
    for row in wrap(say(*parts), max(width - 4, 8)) if parts else ():
        rows.append((Span("   "), *sentence_line(row)))
    if len(rows) > height:
        rows = [*rows[: height - 1], cut_line((*rows[height - 1], Span(" …")), width)]
    return [*rows, *[EMPTY] * (height - len(rows))]


def kind_lines(chosen: frozenset[object], current: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Returns the kinds of events with a mark at those that are chosen; the ones around the current fit the height."""
    first = min(max(current - height // 2, 0), max(len(KINDS) - height, 0))
    rows: list[Line] = []
    for index, kind in enumerate(KINDS[first : first + height], first):
        mark = glyphs.passed if kind in chosen else " "
        row: Line = (Span(f" [{mark}] "), Span(pad(kind.__name__, KIND_COLUMNS + 1), "text"))
        rows.append(put_behind(row, "row") if index == current else row)
    return rows
