"""The step panel: the budget split in its title, the decisions as sentences below."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.analysis.spans import Sentence, Tone, wrap
from kvscope.analysis.spans import Span as WordSpan
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import (
    EMPTY,
    WORD_ROLES,
    Line,
    Span,
    cut_line,
    line_width,
    pad_line,
    put_behind,
    sentence_line,
)

TONE_ROLES: dict[Tone, str] = {
    "failed": "bad",
    "stalled": "bad",
    "preempted": "preempted",
    "refused": "bad",
    "admitted": "text",
    "hit": "hit",
    "evicted": "evict",
    "finished": "text",
    "aborted": "bad",
    "drafts": "draft",
    "prefill": "prefill",
    "new": "new",
    "budget": "dim",
    "arrived": "dim",
    "cached": "cached",
    "transfer": "text",
    "note": "dim",
    "finding": "strong",
    "bookmark": "strong",
}

COLOURED_FIGURES: frozenset[Tone] = frozenset({"failed", "stalled", "preempted", "hit"})
"""Tones whose figures bear their colour: what was lost, what was won."""

INDENT = 3


def sentence_rows(sentence: Sentence, width: int) -> list[Line]:
    """Returns a sentence wrapped into lines of `width` cells, its glyph in front of the first."""
    role = TONE_ROLES[sentence.tone]
    figure = f"bold {role}" if sentence.tone in COLOURED_FIGURES else "bold"
    roles = {**WORD_ROLES, "figure": figure}
    rows = wrap(sentence.spans, max(width - INDENT, 8))
    lines: list[Line] = []
    for index, row in enumerate(rows):
        head = Span(f" {sentence.glyph} ", f"bold {role}") if index == 0 else Span(" " * INDENT)
        lines.append((head, *sentence_line(row, roles)))
    return lines


@dataclass(frozen=True, slots=True)
class SentencesView:
    """The lines, and which sentence each belongs to (None: the line that counts the rest)."""

    lines: tuple[Line, ...]
    sentence_of: tuple[int | None, ...]


def sentences_view(sentences: Sequence[Sentence], width: int, height: int, first: int = 0) -> SentencesView:
    """Returns whole sentences from number `first` on that fit into `height` lines; the last line counts the others."""
    lines: list[Line] = []
    owners: list[int | None] = []
    for index in range(first, len(sentences)):
        rows = sentence_rows(sentences[index], width)
        is_last = index == len(sentences) - 1
        if len(lines) + len(rows) + (0 if is_last else 1) > height:
            if not lines and height > 1:  # not even one fits: its head is better than nothing
                lines, owners = rows[: height - 1], [index] * (height - 1)
                index += 1
            left = len(sentences) - index
            lines.append((Span(f"{' ' * INDENT}… {left} more, enter to read all", "dim"),) if left else EMPTY)
            owners.append(None)
            break
        lines += rows
        owners += [index] * len(rows)
    return SentencesView(tuple(lines[:height]), tuple(owners[:height]))


def event_title(step: int, number: int, num_events: int, kind: str) -> Line:
    """Returns the panel's title inside a step: behind which event the state is, and of what kind that is."""
    return (
        Span("STEP", "bold"),
        Span(" ─ ", "rule"),
        Span(f"{step}", "bold"),
        Span("  event ", "text"),
        Span(f"{number} of {num_events}", "bold"),
        Span(": ", "dim"),
        Span(kind, "bold"),
    )


def event_rows(sentence: Sentence, width: int, num_rows: int) -> list[Line]:
    """Returns the words of the event, in exactly `num_rows` lines; what is longer ends in an ellipsis."""
    rows = sentence_rows(sentence, width)
    if len(rows) > num_rows:
        last = rows[num_rows - 1]
        for row in rows[num_rows:]:
            last = (*last, Span(" "), *row[1:])
        rows = [*rows[: num_rows - 1], cut_line(last, width)]
    rows += [EMPTY] * (num_rows - len(rows))
    return [put_behind(pad_line(row, width), "cursor") for row in rows]


def marked_rows(view: SentencesView, marked: int | None, glyphs: Glyphs) -> list[Line]:
    """Returns the lines, the selection's glyph before the first line of the marked sentence."""
    lines = list(view.lines)
    if marked is not None and marked in view.sentence_of:
        place = view.sentence_of.index(marked)
        head, *rest = lines[place]
        lines[place] = (head._replace(text=glyphs.selected + head.text[1:]), *rest)
    return lines


def title_line(step: int, words: Sequence[WordSpan], width: int) -> Line:
    """Returns the panel's title, the figure before each kind of token in that kind's colour.

    The clock yields first, then how many requests a figure is of: a figure is never cut.
    """
    head: Line = (Span("STEP", "bold"), Span(" ─ ", "rule"), Span(f"{step}", "bold"), Span("  "))
    spans = sentence_line(words)
    room = width - line_width(head)
    if line_width(spans) > room:
        spans = _without_clock(spans)
    if line_width(spans) > room:
        spans = tuple(span._replace(text=re.sub(r" of \d+ requests", "", span.text)) for span in spans)
    line = list(head)
    for index, span in enumerate(spans):
        following = spans[index + 1].text.split() if index + 1 < len(spans) else []
        kind = following[0] if span.role == "bold" and following else ""
        line.append(span._replace(role=f"bold {kind}") if kind in ("decode", "draft", "prefill") else span)
    return tuple(line)


def _without_clock(spans: Line) -> Line:
    return spans[:-1] if spans and spans[-1].role == "dim" and spans[-1].text.endswith("forward") else spans
