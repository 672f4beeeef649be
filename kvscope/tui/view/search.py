"""The lines of a search: its title, how far it is, and one line a hit."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.search.around import Reached
from kvscope.analysis.search.hit import Hit
from kvscope.analysis.text import cell_width, visible
from kvscope.tui.view.entries import Entry
from kvscope.tui.view.lines import Line, Span, Target, cut_line, fit, pad, request_target

_KIND_ROLES = {
    "request": "bold",
    "prompt": "prefill",
    "output": "decode",
    "token": "draft",
    "block": "live",
    "hash": "cached",
    "event": "evict",
    "reason": "bad",
}
_KIND_COLUMNS = max(map(len, _KIND_ROLES)) + 1
MAX_ID_CELLS = 20
MAX_BEFORE_CELLS = 12
"""Of what stands before a hit, where only one line tells of it."""


def search_words(text: str, width: int) -> tuple[Span, ...]:
    """Returns what is looked for."""
    return (Span("“", "dim"), Span(fit(visible(text), max(width, 8)), "bold"), Span("”", "dim"))


def progress_words(
    num_hits: int,
    reached: Reached,
    num_steps: int,
    *,
    is_searching: bool,
    is_full: bool,
    error: str,
    keys_to_go_on: str = "",
) -> tuple[Span, ...]:
    """Returns how much was found, and which steps were looked through."""
    if error:
        return (Span(error, "bad"),)
    hits = f"{num_hits:,} {'hit' if num_hits == 1 else 'hits'}"
    if is_searching:
        return (Span(hits, "bold"), Span(f" in {_range(reached)} of {num_steps:,} so far, esc stops", "dim"))
    if is_full:
        return (Span(f"the nearest {hits}", "bold"), Span(": say more exactly what you look for", "dim"))
    if reached.num_steps < num_steps:
        on = f"; {keys_to_go_on} goes on" if keys_to_go_on else ""
        return (Span(hits, "bold"), Span(f" in {_range(reached)} of {num_steps:,}, stopped{on}", "dim"))
    return (Span(hits, "bold"), Span(f" in {num_steps:,} steps", "dim"))


def _range(reached: Reached) -> str:
    if not reached.num_steps:
        return "no step"
    return f"steps {reached.first_step:,}–{reached.last_step:,}"


def hit_words(index: int, hits: Sequence[Hit]) -> str:
    """Returns which hit of how many one stands at, and what it is, in a line of visible text."""
    hit = hits[index]
    whose = "" if hit.request_id is None else f" of {fit(visible(hit.request_id), MAX_ID_CELLS)}"
    before = hit.before if len(hit.before) <= MAX_BEFORE_CELLS else f"…{hit.before[-MAX_BEFORE_CELLS:]}"
    return f"hit {index + 1:,} of {len(hits):,}: {hit.kind}{whose} {before}{hit.match}{hit.after}"


def hit_entries(hits: Sequence[Hit], width: int) -> list[Entry]:
    """Returns a line for each hit: step, kind, request, and the words with what was found in them."""
    step_columns = len(str(hits[-1].step)) if hits else 1
    names = {hit.request_id for hit in hits if hit.request_id is not None}
    id_columns = min(max((cell_width(visible(name)) for name in names), default=0), MAX_ID_CELLS)
    return [
        Entry((_hit_line(hit, width, step_columns, id_columns),), Target("hit", str(index)))
        for index, hit in enumerate(hits)
    ]


def _hit_line(hit: Hit, width: int, step_columns: int, id_columns: int) -> Line:
    name = fit(visible(hit.request_id or ""), id_columns)
    target = None if hit.request_id is None else request_target(hit.request_id)
    room = width - step_columns - id_columns - _KIND_COLUMNS - 5
    before = hit.before if len(hit.before) <= room // 3 else "…" + hit.before[-max(room // 3, 8) :]
    line: Line = (
        Span(f" {hit.step:>{step_columns}}  ", "dim"),
        Span(pad(hit.kind, _KIND_COLUMNS), _KIND_ROLES[hit.kind]),
        Span(pad(name, id_columns) + "  ", "text", "", target),
        Span(before, "dim"),
        Span(hit.match, "bold evict"),
        Span(hit.after, "dim"),
    )
    return cut_line(line, width)
