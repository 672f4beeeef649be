"""How long it has been so: the free blocks and the verdict of each step on a page of the request's life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.analysis.why.here import Refusal, Refusals
from kvscope.analysis.why.words import BLOCK_TESTS
from kvscope.replay.timeline import StepSummary
from kvscope.tui.view.charts import Layer, stack_heights, stacked_rows
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.life import Deed, life_glyphs
from kvscope.tui.view.lines import Line, Span, cut_line, merge
from kvscope.tui.view.timeline import tick_interval
from kvscope.tui.view.window import Window

LABEL_COLUMNS = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFacts:
    """A page of steps, one a column."""

    window: Window
    step: int
    request_id: str
    deeds: Sequence[Deed]
    """What the request did, from the page's first step on."""
    refusals: Refusals
    summaries: Sequence[StepSummary]
    num_usable_blocks: int
    need: int | None
    """Blocks that the head needs at the step, watermark included; None where blocks are not the matter."""


def verdict_glyph(refusal: Refusal, request_id: str, glyphs: Glyphs) -> tuple[str, str]:
    """Returns the letter of a step in which the request waited, and its role."""
    reason = refusal.reason
    if reason == "preempted":
        return glyphs.mark_preempted, "dim"
    if reason in BLOCK_TESTS:
        return ("✗", "bad") if refusal.request_id == request_id else ("↳", "dim")
    letters = {"max_num_seqs": "s", "budget": "b", "chunked_prefill_off": "c", "spec_pad_budget": "c", "policy": "p"}
    return letters.get(reason, "?"), "text"


def history_lines(facts: HistoryFacts, width: int, num_bar_rows: int, glyphs: Glyphs) -> list[Line]:
    """Returns the bars of free blocks, the verdicts, the axis and the legend."""
    window, need = facts.window, facts.need
    cursor = window.column(facts.step) if facts.step in window else None
    free = [facts.num_usable_blocks - column.num_live_blocks for column in facts.summaries]
    top = max([*free, need or 0, 1])
    heights = [
        stack_heights((number, 0) if need is not None and number < need else (0, number), top, num_bar_rows)
        for number in free
    ]
    layers = (Layer("bad", glyphs.bar_cached), Layer("cached", glyphs.bar_live))
    bars = stacked_rows(heights, layers, num_bar_rows, glyphs, cursor_column=cursor)
    labels = [""] * (num_bar_rows - 1) + [f"free ≤ {top}"]
    lines: list[Line] = [
        (Span(label.ljust(LABEL_COLUMNS), "dim"), *bar) for label, bar in zip(labels, bars, strict=True)
    ]
    lines.append((Span("verdict".ljust(LABEL_COLUMNS), "dim"), *_verdicts(facts, cursor, glyphs)))
    lines.append((Span(" " * LABEL_COLUMNS), *_axis(facts, cursor)))
    lines.append(cut_line(_legend(glyphs), width))
    return lines


def _verdicts(facts: HistoryFacts, cursor: int | None, glyphs: Glyphs) -> Line:
    chars, roles = life_glyphs(facts.deeds, glyphs)
    cells: list[Span] = []
    for column, (char, role, deed) in enumerate(zip(chars, roles, facts.deeds, strict=True)):
        refusal = facts.refusals[facts.window.first_step + column] if deed == "waits" else None
        if refusal is not None:
            char, role = verdict_glyph(refusal, facts.request_id, glyphs)
        cells.append(Span(char, role, "cursor" if column == cursor else ""))
    return merge(cells)


def _axis(facts: HistoryFacts, cursor: int | None) -> Line:
    """The step at the cursor, reversed, and ticks beside it."""
    window = facts.window
    cells = [Span(" ", "dim") for _ in range(window.num_columns)]
    label = f" {facts.step} " if cursor is not None else ""
    start = max(min((cursor or 0) - len(label) // 2, window.num_columns - len(label)), 0)
    taken = range(start - 1, start + len(label) + 1) if label else range(0)
    interval = tick_interval(window.steps_per_column)
    ticks = {window.first_step, *range(-(-window.first_step // interval) * interval, window.end_step, interval)}
    used = -1
    for step in sorted(ticks):
        column, text = window.column(step), f"╵{step}"
        reach = range(column, column + len(text))
        if reach.stop > window.num_columns or column <= used or any(index in taken for index in reach):
            continue
        for offset, char in enumerate(text):
            cells[column + offset] = Span(char, "rule" if offset == 0 else "dim")
        used = reach.stop
    for offset, char in enumerate(label):
        if start + offset < window.num_columns:
            cells[start + offset] = Span(char, "reversed bold")
    return merge(cells)


def _legend(glyphs: Glyphs) -> Line:
    entries = (
        ("✗", "bad", "its blocks short"),
        ("↳", "dim", "behind another"),
        ("s", "text", "seqs full"),
        ("b", "text", "budget used"),
        (glyphs.mark_preempted, "preempted", "preemption"),
        (glyphs.life_decode, "decode", "it ran"),
    )
    spans: list[Span] = []
    for glyph, role, name in entries:
        spans += [Span(glyph, role), Span(f" {name}  ", "dim")]
    return (*spans, Span("red", "bad"), Span(": free < need", "dim"))
