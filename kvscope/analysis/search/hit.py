"""Something that was found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kvscope.analysis.text import visible

HitKind = Literal["request", "prompt", "output", "token", "block", "hash", "event", "reason"]

_MAX_BEFORE, _MAX_MATCH, _MAX_AFTER = 32, 60, 60
"""Characters of a text that are shown around and of what was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A place where the query was found. Texts are visible text already."""

    step: int
    kind: HitKind
    request_id: str | None = None
    block_id: int | None = None
    before: str = ""
    match: str
    after: str = ""

    @property
    def text(self) -> str:
        """What was found, with what stands around it."""
        return self.before + self.match + self.after


def hit_in_text(
    found: re.Match[str], step: int, kind: HitKind, request_id: str | None, block_id: int | None = None
) -> Hit:
    """Returns a match as a hit, with a little of the text around it."""
    text, (start, stop) = found.string, found.span()
    before = text[max(start - _MAX_BEFORE, 0) : start]
    shown_stop = min(stop, start + _MAX_MATCH)
    after = text[shown_stop : shown_stop + _MAX_AFTER]
    return Hit(
        step=step,
        kind=kind,
        request_id=request_id,
        block_id=block_id,
        before=("…" if start > len(before) else "") + visible(before),
        match=visible(text[start:shown_stop]),
        after=visible(after) + ("…" if len(text) > shown_stop + len(after) else ""),
    )
