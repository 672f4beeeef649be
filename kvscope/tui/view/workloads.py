"""The lines of the workloads menu, and what a rehearsal has foretold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvscope.analysis.setting_words import settings_line
from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import wrap
from kvscope.analysis.workload_menu import WORKLOADS, Forecast, Workload, foretold
from kvscope.tui.view.lines import EMPTY, Line, Span, pad_line, put_behind, sentence_line


def menu_lines(current: int, width: int, walk_keys: str) -> list[Line]:
    """Returns the entries of the menu with what each sends."""
    lines: list[Line] = [(Span("WORKLOADS", "bold"),), EMPTY]
    for number, workload in enumerate(WORKLOADS, 1):
        entry: Line = (Span(f" {number} ", "bold evict"), Span(workload.title, "bold"))
        is_current = number - 1 == current
        lines.append(put_behind(pad_line(entry, width), "selected") if is_current else entry)
        lines += [(Span("   "), *row) for row in _wrapped(workload.what, width - 3, "dim")]
    return [*lines, EMPTY, (Span(f"⏎ or a digit opens it · {walk_keys} · esc closes", "dim"),)]


def foretold_lines(
    workload: Workload, forecast: Forecast | None, look_at: str, width: int, *, is_idle: bool
) -> list[Line]:
    """Returns what the workload would bring about on the engine as it is, and what to do where that is not enough.

    `forecast` is None while the rehearsal goes on, and where the figures are wrong; `look_at` has its keys filled in.
    """
    lines = _wrapped(f"{workload.what} Look at {look_at}", width, "dim")
    if forecast is None:
        return [*lines, (Span("…", "dim"),)]
    found = forecast.rehearsal
    lines += _wrapped(foretold(found, is_idle=is_idle), width, "text")
    if found.stuck:
        lines += _wrapped(f"✗ {found.stuck}", width, "bad")
    elif not workload.happens(found):
        lines += _wrapped(f"✗ It brings about no {workload.mechanism} here. {_advice(forecast.remedy)}", width, "bad")
    return lines


def _advice(remedy: Mapping[str, Any]) -> str:
    if remedy:
        return f"ctrl+r restarts the engine with {settings_line(remedy)}: then it does."
    return "Other figures may: more requests, or longer ones."


def _wrapped(text: str, width: int, role: str) -> list[Line]:
    roles: dict[Any, str] = dict.fromkeys(("plain", "dim", "strong", "figure", "entity"), role)
    return [sentence_line(row, roles) for row in _rows(text, width)]


def _rows(text: str, width: int) -> Sequence[tuple[WordSpan, ...]]:
    return [tuple(row) for row in wrap((WordSpan(text),), max(width, 10))]
