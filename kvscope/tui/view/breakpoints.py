"""The lines of the list of breakpoints."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.conditions import ConditionError
from kvscope.analysis.conditions.fields import FIELDS
from kvscope.analysis.text import cell_width, visible
from kvscope.tui.view.lines import Line, Span, cut_line, line_width, pad_line, put_behind

SCOPES = {"step": "of the step", "both": "of the step or a request", "request": "of a request"}


def breakpoint_lines(
    entries: Sequence[tuple[str, bool]], first: int, num_shown: int, current: int | None, width: int
) -> list[Line]:
    """Returns the title and the conditions, each with whether it is on; the current one on its background."""
    lines: list[Line] = [(Span("BREAKPOINTS", "bold"), Span("  where the engine pauses, where a replay stops", "dim"))]
    for index, (text, is_enabled) in enumerate(entries[first : first + num_shown], first):
        mark = "✓" if is_enabled else " "
        line: Line = (Span(f" [{mark}] "), Span(visible(text), "bold" if is_enabled else "dim"))
        line = cut_line(line, width)
        lines.append(put_behind(pad_line(line, width), "row") if index == current else line)
    num_more = len(entries) - first - num_shown
    if num_more > 0:
        lines.append((Span(f" … {num_more} more", "dim"),))
    if not entries:
        lines.append((Span(" none yet: type a condition", "dim"),))
    return lines


def hint_lines() -> list[Line]:
    """Returns examples and the keys."""
    return [
        (Span('preempted · evicted > 0 · request == "req-7" and waiting_steps > 20', "dim"),),
        (Span("tab list, line · space on, off · x removes · f1 fields · esc closes", "dim"),),
    ]


def error_lines(error: ConditionError, width: int) -> list[Line]:
    """Returns a caret below the place, and what is wrong there; stands below the line in which it was typed.

    A condition that this line cannot show as a whole is repeated, around the place.
    """
    text, caret, reason = error.pointed()
    lines: list[Line] = [(Span(caret, "bold bad"),), (Span(reason, "bad"),)]
    if cell_width(text) < width:
        return lines
    part = visible(error.text[max(error.column - width // 2, 0) : error.column + width // 4])
    before = cell_width(visible(error.text[max(error.column - width // 2, 0) : error.column]))
    return [(Span(part, "dim"),), (Span(" " * before + "^", "bold bad"),), (Span(reason, "bad"),)]


def fields_lines(width: int, height: int) -> list[Line]:
    """Returns the names of all fields, as many a line as fit; what they mean `kvscope find --fields` says."""
    lines: list[Line] = []
    for scope, title in SCOPES.items():
        line: list[Span] = [Span(f"{title}: ", "bold")]
        for field in FIELDS.values():
            if field.scope != scope:
                continue
            name = Span(f"{field.name} ", "text")
            if line_width(line) + cell_width(name.text) > width:
                lines.append(tuple(line))
                line = [Span("  ")]
            line.append(name)
        lines.append(tuple(line))
    return [*lines[: max(height - 1, 1)], (Span("kvscope find --fields says what each one means", "dim"),)]
