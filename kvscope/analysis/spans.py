"""Sentences as records: words with their meaning, so that a screen can colour and jump and a command can print them.

Span texts are visible text already (see `kvscope.analysis.text`): whatever stands in an id or a message, a reader may
print it as it is, but must not interpret it as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
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
    "finding",
    "bookmark",
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


_SPACES = re.compile(r" +(?!ms\b)")
"""Where a line may end: not between a duration and its unit."""
_MIN_RUN = 3
"""Fewer blocks in a row are no shorter as a range."""

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
    """Returns `155 151 143–140`: blocks in order, three or more in a row as a range; `limit` counts such entries.

    Beyond it `155 151 +7`: so many blocks more.
    """
    runs = _runs(block_ids)
    parts: list[Part] = []
    for first, last in runs[:limit]:
        if parts:
            parts.append(dim(" "))
        parts.append(block(first))
        if first != last:
            parts += [dim("–"), block(last)]
    num_more = len(block_ids) - sum(abs(last - first) + 1 for first, last in runs[:limit])
    if num_more:
        parts.append(dim(f" +{num_more}"))
    return parts


def _runs(block_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the blocks as ranges, rising or falling by one; of less than three blocks each one alone."""
    runs: list[tuple[int, int]] = []
    index = 0
    while index < len(block_ids):
        first = block_ids[index]
        end = index + 1
        way = block_ids[end] - first if end < len(block_ids) else 0
        if way in (1, -1):
            while end < len(block_ids) and block_ids[end] - block_ids[end - 1] == way:
                end += 1
        if end - index < _MIN_RUN:
            end = index + 1
        runs.append((first, block_ids[end - 1]))
        index = end
    return runs


def dotted(items: Sequence[Sequence[Part]], limit: int) -> list[Part]:
    """Returns items as context, `a · b · c`; beyond `limit` items `a · b · 3 more requests`."""
    parts: list[Part] = []
    for item in items[:limit]:
        if parts:
            parts.append(dim(" · "))
        parts += item
    if len(items) > limit:
        parts.append(dim(f" · {count(len(items) - limit, 'more request')}"))
    return parts


def wrap(spans: Sequence[Span], width: int) -> list[tuple[Span, ...]]:
    """Breaks the spans into lines of at most `width` cells, at spaces only, so that no word and no figure is cut.

    Entities hold together. Only a word that is wider than a whole line is broken, at the line's end.
    """
    width = max(width, 1)
    text = plain(spans)
    lines: list[tuple[int, int]] = []
    line = used = 0
    for begin, end in _words(text, spans):
        word = text[begin:end].rstrip(" ")
        cells = cell_width(word)
        if used and used + cells > width:
            lines.append((line, begin))
            line, used = begin, 0
        while cells > width and len(word) > 1:
            num_chars = _num_fitting_chars(word, width)
            lines.append((line, line + num_chars))
            line, word = line + num_chars, word[num_chars:]
            cells = cell_width(word)
        used += cells + end - begin - len(text[begin:end].rstrip(" "))
    lines.append((line, len(text)))
    return _cut(spans, [(begin, begin + len(text[begin:end].rstrip(" "))) for begin, end in lines])


def hanging(lead: str, spans: Sequence[Span], width: int) -> list[str]:
    """Returns plain lines of at most `width` cells, `lead` before the first one, the others indented to it."""
    indent = cell_width(lead)
    texts = [plain(line) for line in wrap(spans, width - indent)]
    return [lead + texts[0], *(" " * indent + text for text in texts[1:])] if texts else [lead.rstrip()]


def _words(text: str, spans: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Yields words with the spaces behind them, as ranges of the text; spaces within an entity part no words."""
    closed: list[tuple[int, int]] = []
    at = 0
    for span in spans:
        if span.entity is not None and " " in span.text:
            closed.append((at, at + len(span.text)))
        at += len(span.text)
    begin = 0
    for gap in _SPACES.finditer(text):
        if not any(start < gap.end() < stop for start, stop in closed):
            yield begin, gap.end()
            begin = gap.end()
    if begin < len(text):
        yield begin, len(text)


def _num_fitting_chars(word: str, width: int) -> int:
    """Returns how many characters fit into a line; at least one."""
    used = 0
    for index, char in enumerate(word):
        used += cell_width(char)
        if used > width:
            return max(index, 1)
    return len(word)


def _cut(spans: Sequence[Span], lines: Sequence[tuple[int, int]]) -> list[tuple[Span, ...]]:
    """Returns the spans of ranges of their text, which follow one another."""
    cut: list[tuple[Span, ...]] = []
    index = at = 0  # the first span that reaches into the line, and where it begins
    for begin, end in lines:
        while index < len(spans) and at + len(spans[index].text) <= begin:
            at += len(spans[index].text)
            index += 1
        pieces: list[Span] = []
        start, number = at, index
        while number < len(spans) and start < end:
            span = spans[number]
            piece = span.text[max(begin - start, 0) : end - start]
            if piece:
                pieces.append(span if piece == span.text else replace(span, text=piece))
            start += len(span.text)
            number += 1
        cut.append(tuple(pieces))
    return cut
