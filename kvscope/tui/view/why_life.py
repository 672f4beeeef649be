"""A request's whole answer as a list: why it waited, was preempted, missed, was slow. Each sentence is a jump."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.why.layout import Section, laid_out
from kvscope.tui.view.entries import Entry, heading
from kvscope.tui.view.lines import EMPTY, Span, Target, sentence_line

MAX_COLUMNS = 140
"""Longer lines are hard to read."""


def life_entries(sections: Sequence[Section], width: int) -> list[Entry]:
    """Returns the sections: titles to read, sentences that lead to the first step (or request) that they name."""
    entries: list[Entry] = []
    for section in sections:
        if entries:
            entries.append(heading(EMPTY))
        if section.title:
            entries.append(heading((Span(f" {section.title}", "bold"),)))
        for line in section.lines:
            rows = laid_out([Section("", (line,))], min(width, MAX_COLUMNS) - 1)
            entries.append(Entry(tuple((Span(" "), *sentence_line(row)) for row in rows), target_of(line.spans)))
    return entries


def target_of(words: Sequence[WordSpan]) -> Target | None:
    """Returns where a sentence leads: to the first step that it names, else to the first request."""
    entities = [span.entity for span in words if span.entity is not None]
    first = next((entity for entity in entities if entity.kind == "step"), entities[0] if entities else None)
    return Target(first.kind, str(first.key)) if first is not None else None
