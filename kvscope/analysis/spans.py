"""Sentences as records: words with their meaning, so that a screen can colour and jump and a command can print them.

Span texts are visible text already (see `kvscope.analysis.text`): whatever stands in an id or a message, a reader may
print it as it is, but must not interpret it as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvscope.analysis.text import cell_width, visible

Role = Literal["plain", "dim", "strong", "figure", "entity"]
"""How a span is meant: context, emphasis, a figure that decided something, something that has an identity."""

Tone = Literal[
    "failed",
    "stalled",
    "preempted",
    "refused",
    "admitted",
    "hit",
    "evicted",
    "finished",
    "aborted",
    "drafts",
    "prefill",
    "new",
    "budget",
    "arrived",
    "cached",
    "transfer",
    "note",
]
"""What a sentence is about; a screen has one colour for each."""


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that one can go to: `key` is a request id, a block id or a step number."""

    kind: Literal["request", "block", "step"]
    key: str | int


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a sentence."""

    text: str
    role: Role = "plain"
    entity: Entity | None = None


@dataclass(frozen=True, slots=True)
class Sentence:
    """One decision in words. `spans` follow the glyph and a space."""

    glyph: str
    tone: Tone
    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        """The words without the glyph."""
        return plain(self.spans)

    def __str__(self) -> str:
        return f"{self.glyph} {self.text}"

    @property
    def entities(self) -> list[Entity]:
        """What the sentence names, in order, each once."""
        return list(dict.fromkeys(span.entity for span in self.spans if span.entity is not None))


Part = str | Span


def say(*parts: Part | Iterable[Part]) -> tuple[Span, ...]:
    """Joins words and spans; a plain string is a plain span. Neighbours of one role become one span."""
    spans: list[Span] = []
    for part in parts:
        for piece in (part,) if isinstance(part, str | Span) else part:
            span = Span(piece) if isinstance(piece, str) else piece
            if not span.text:
                continue
            if spans and span.entity is None and spans[-1].entity is None and spans[-1].role == span.role:
                spans[-1] = replace(span, text=spans[-1].text + span.text)
            else:
                spans.append(span)
    return tuple(spans)


def plain(spans: Sequence[Span]) -> str:
    """Returns the words alone."""
    return "".join(span.text for span in spans)


def request(request_id: str, role: Role = "entity") -> Span:
    """A request's id, as a jump; in a list of context its role is "dim"."""
    return Span(visible(request_id), role, Entity("request", request_id))


def block(block_id: int) -> Span:
    """A block's id, as a jump. Blocks stand in lists, as context."""
    return Span(str(block_id), "dim", Entity("block", block_id))


def step(number: int, text: str | None = None) -> Span:
    """A step's number, as a jump."""
    return Span(str(number) if text is None else text, "entity", Entity("step", number))


def figure(text: str | int) -> Span:
    """A figure that decided something."""
    return Span(str(text), "figure")


def strong(text: str) -> Span:
    """Words that carry the sentence."""
    return Span(text, "strong")


def dim(text: str) -> Span:
    """Context."""
    return Span(text, "dim")


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Returns the number with its noun: `1 block`, `25 blocks`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listed(parts: Sequence[Part], limit: int, more: str = "others", one_more: str = "other") -> list[Part]:
    """Returns `a, b and c`; beyond `limit` parts `a, b and 3 others`."""
    shown: list[Part] = list(parts[:limit])
    num_more = len(parts) - limit
    if num_more > 0:
        shown.append(f"{num_more} {one_more if num_more == 1 else more}")
    joined: list[Part] = []
    for index, part in enumerate(shown):
        if index:
            joined.append(" and " if index == len(shown) - 1 else ", ")
        joined.append(part)
    return joined


def block_list(block_ids: Sequence[int], limit: int) -> list[Part]:
    """Returns `155 151 143 140`; beyond `limit` blocks `155 151 … 7 more`."""
    parts: list[Part] = []
    for block_id in block_ids[:limit]:
        parts += [dim(" "), block(block_id)] if parts else [block(block_id)]
    if len(block_ids) > limit:
        parts.append(dim(f" … {len(block_ids) - limit} more"))
    return parts


def dotted(items: Sequence[Sequence[Part]], limit: int) -> list[Part]:
    """Returns items as context, `a · b · c`; beyond `limit` items `a · b … 3 more`."""
    parts: list[Part] = []
    for item in items[:limit]:
        if parts:
            parts.append(dim(" · "))
        parts += item
    if len(items) > limit:
        parts.append(dim(f" … {len(items) - limit} more"))
    return parts


def wrap(spans: Sequence[Span], width: int) -> list[tuple[Span, ...]]:
    """Breaks the spans into lines of at most `width` cells, at spaces only, so that no word and no figure is cut.

    Entities hold together. Only a word that is wider than a whole line is broken, at the line's end.
    """
    width = max(width, 1)
    lines: list[list[Span]] = [[]]
    used = 0
    for word in _words(spans):
        cells = sum(cell_width(span.text) for span in word)
        trailing = len(word[-1].text) - len(word[-1].text.rstrip(" "))
        if used and used + cells - trailing > width:
            lines.append([])
            used = 0
        for span in word:
            for piece in _chopped(span, width):
                if used and used + cell_width(piece.text.rstrip(" ")) > width:
                    lines.append([])
                    used = 0
                lines[-1].append(piece)
                used += cell_width(piece.text)
    return [_without_trailing_space(line) for line in lines]


def _words(spans: Sequence[Span]) -> list[list[Span]]:
    """Groups pieces of spans into words, each with the spaces behind it; a word may reach over several spans."""
    words: list[list[Span]] = [[]]
    for span in spans:
        pieces = [span.text] if span.entity is not None else re.findall(r"[^ ]* +|[^ ]+", span.text)
        for piece in pieces:
            words[-1].append(replace(span, text=piece))
            if piece.endswith(" "):
                words.append([])
    return [word for word in words if word]


def _chopped(span: Span, width: int) -> list[Span]:
    """Cuts a span that is wider than a line into pieces of a line each."""
    if cell_width(span.text.rstrip(" ")) <= width:
        return [span]
    pieces: list[Span] = []
    text = ""
    for char in span.text:
        if text and cell_width(text + char) > width:
            pieces.append(replace(span, text=text))
            text = ""
        text += char
    return [*pieces, replace(span, text=text)]


def _without_trailing_space(line: list[Span]) -> tuple[Span, ...]:
    if line:
        line[-1] = replace(line[-1], text=line[-1].text.rstrip(" "))
    return say(line)
