"""Finds a pattern in a text; a regular expression only in short pieces of it.

Python's regular expressions hold the interpreter until they are done, and what they cost grows with a power of the
text's length: in a piece of so few characters even the worst that `patterns` lets pass takes no longer than a blink.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

PIECE_CHARACTERS = 300
OVERLAP_CHARACTERS = 100
"""A match of a regular expression that is longer than this may be found in part, or not."""


def find_all(pattern: re.Pattern[str], text: str, *, is_literal: bool) -> Iterator[tuple[re.Match[str], int]]:
    """Yields matches in order, each once, with the place in the text at which their own string begins."""
    if is_literal or len(text) <= PIECE_CHARACTERS:
        for found in pattern.finditer(text):
            if found.end() > found.start():
                yield found, 0
        return
    told_until = 0
    for begin in range(0, len(text) - OVERLAP_CHARACTERS, PIECE_CHARACTERS - OVERLAP_CHARACTERS):
        for found in pattern.finditer(text[begin : begin + PIECE_CHARACTERS]):
            if found.end() > found.start() and begin + found.start() >= told_until:
                told_until = begin + found.end()
                yield found, begin
