"""Lines of spans: what the view functions return and the widgets paint.

A span is text with the name of its role; themes give the role its colour. Knows nothing of colours or widgets. Widths
are terminal cells, so that a CJK character counts two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kvscope.analysis import spans as words
from kvscope.analysis.text import cell_width


class Target(NamedTuple):
    """Something that can be gone to: a request, a block, a hash or a step."""

    kind: str
    """"request", "block", "hash" or "step"."""
    key: str
    request_id: str = ""
    """Of a step: whom the entry is about that leads there; it is selected then."""


class Span(NamedTuple):
    """A run of text in one role."""

    text: str
    role: str = "text"
    """Names of roles, separated by blanks; later ones win."""
    on: str = ""
    """What lies behind it: a background role, or "" for none."""
    target: Target | None = None
    """Where a click on it leads."""


_TEXT, _LOOK = itemgetter(0), itemgetter(1, 2, 3)
"""A span's text, and all the rest: screens have thousands of spans, so that `merge` does without their names."""

Line = tuple[Span, ...]

EMPTY: Line = ()

WORD_ROLES: Mapping[words.Role, str] = {
    "plain": "text",
    "dim": "dim",
    "strong": "bold",
    "figure": "bold",
    "entity": "bold",
}
"""How the words of an analysis look where nothing else is said."""


def request_target(request_id: str) -> Target:
    return Target("request", request_id)


def block_target(block_id: int) -> Target:
    return Target("block", str(block_id))


def step_target(step: int, said: words.Sentence | None = None) -> Target:
    """Returns the step as a target, with the request that a sentence on it names first."""
    entities = () if said is None else said.entities
    return Target("step", str(step), next((str(one.key) for one in entities if one.kind == "request"), ""))


def line_width(line: Iterable[Span]) -> int:
    """Returns the width in cells."""
    return sum(map(cell_width, map(_TEXT, line)))


def fit(text: str, width: int, ellipsis: str = "…") -> str:
    """Cuts a text that is wider than `width` cells, with an ellipsis at its end; never splits a wide character."""
    if cell_width(text) <= width:
        return text
    room = width - len(ellipsis)
    if room < 0:
        return ellipsis[: max(width, 0)]
    used = 0
    for index, char in enumerate(text):
        used += cell_width(char)
        if used > room:
            return text[:index] + ellipsis
    return text


def pad(text: str, width: int) -> str:
    """Fills with blanks up to `width` cells."""
    return text + " " * (width - cell_width(text))


def pad_line(line: Line, width: int, *, on: str = "") -> Line:
    """Fills a line with blanks up to `width` cells."""
    missing = width - line_width(line)
    return (*line, Span(" " * missing, "text", on)) if missing > 0 else line


def cut_line(line: Line, width: int, ellipsis: str = "…") -> Line:
    """Cuts a line to `width` cells, ending in an ellipsis where something was cut."""
    if line_width(line) <= width:
        return line
    room = width - len(ellipsis)
    spans: list[Span] = []
    for span in line:
        span_width = cell_width(span.text)
        if span_width > room:
            cut = fit(span.text + " " * len(ellipsis), room + len(ellipsis), ellipsis)
            spans.append(span._replace(text=cut))
            break
        spans.append(span)
        room -= span_width
    return tuple(spans)


def put_behind(line: Line, on: str) -> Line:
    """Lays a background behind all of a line that has none of its own."""
    return tuple(span if span.on else span._replace(on=on) for span in line)


def two_ends(left: Line, right: Line, width: int) -> Line:
    """Sets two lines at both ends of a row. The right one is kept whole; the left one is cut before it."""
    room = width - line_width(right)
    left = cut_line(left, max(room - 1, 0))
    return (*pad_line(left, room), *right)


def rule(width: int, title: Sequence[Span], right: Sequence[Span] = (), *, is_focused: bool = False, bar: str) -> Line:
    """Returns a titled rule `── TITLE ──────── right ──`; `bar` is the character that it is drawn with."""
    role = "rule-focused" if is_focused else "rule"
    head: Line = (Span(bar * 2, role), Span(" "), *title, Span(" "))
    tail: Line = (Span(" "), *right, Span(" " + bar * 2, role)) if right else ()
    room = width - line_width(head) - line_width(tail)
    if room < 0 and right:
        return rule(width, title, is_focused=is_focused, bar=bar)
    return cut_line((*head, Span(bar * max(room, 0), role), *tail), width)


def merge(spans: Iterable[Span]) -> Line:
    """Joins neighbours of one look, so that a painter sees few segments."""
    return tuple(
        Span("".join([span[0] for span in same]), *look) for look, same in groupby(filter(_TEXT, spans), key=_LOOK)
    )


def sentence_line(spans: Sequence[words.Span], roles: Mapping[words.Role, str] = WORD_ROLES, *, on: str = "") -> Line:
    """Returns the words of an analysis as a line: their roles by `roles`, their entities as targets."""
    return tuple(
        Span(
            span.text,
            roles[span.role],
            on,
            Target(span.entity.kind, str(span.entity.key)) if span.entity is not None else None,
        )
        for span in spans
    )
