"""Text of tokens, blocks and prompts made safe for a terminal: every hidden character visible, measured in cells.

Tokens, prompts and error messages are data. Nothing here obeys them: control characters, escape sequences,
bidirectional overrides and zero-width characters become glyphs, and markup stays the characters it is made of.
Knows nothing of requests or recordings.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from rich.cells import cell_len

ELLIPSIS = "…"

_NAMED = {"\n": "⏎", "\r": "␍", "\t": "⇥", "\x1b": "␛", "\x7f": "␡", "\u2028": "⏎", "\u2029": "⏎"}
_CONTROL_PICTURES = 0x2400
_VARIATION_SELECTORS = dict.fromkeys(range(0xFE00, 0xFE10))

_MAX_CHARACTER_BYTES = 4


def visible(text: str) -> str:
    """Returns the text with every character that would be hidden or obeyed shown as a glyph.

    Line breaks are ⏎, tabs ⇥, escapes ␛, other C0 controls their control picture; all else that a terminal would not
    print as itself (C1, bidirectional, zero-width, tags, surrogates, unassigned) is ‹U+202E›. Variation selectors are
    dropped: terminals disagree on the width that they give.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _glyph(char) for char in text)
    if not text.isascii():
        text = text.translate(_VARIATION_SELECTORS)
    return text


def _glyph(char: str) -> str:
    named = _NAMED.get(char)
    if named is not None:
        return named
    if ord(char) < 0x20:
        return chr(_CONTROL_PICTURES + ord(char))
    if unicodedata.category(char) == "Zs":  # other spaces: "not printable" to Python, harmless and of known width
        return char
    return f"‹U+{ord(char):04X}›"


@lru_cache(maxsize=1 << 13)
def cell_width(text: str) -> int:
    """Returns how many terminal cells the text takes: 2 for CJK and emoji, 0 for combining marks.

    Remembered: a screen asks for two thousand a key, most of them the same as before.
    """
    return len(text) if text.isascii() else cell_len(text)


def truncate(text: str, width: int) -> str:
    """Returns the text in at most `width` cells, ending in … where something was cut."""
    if width <= 0:
        return ""
    if cell_width(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + ELLIPSIS
    cells = 1  # the ellipsis
    for index, char in enumerate(text):
        cells += cell_len(char)
        if cells > width:
            return text[:index] + ELLIPSIS
    return text


def fit(text: str, width: int) -> str:
    """Returns the text in exactly `width` cells: truncated with …, or padded with spaces."""
    text = truncate(text, width)
    return text + " " * (width - cell_width(text))


def token_text(token_bytes: Sequence[bytes | None], token_ids: Sequence[int], start: int, stop: int) -> str:
    """Returns the visible text of tokens `start:stop`.

    A character that is split over tokens belongs to the range that holds its first byte, so that the texts of
    neighbouring blocks put together are the whole text. Tokens without recorded bytes are shown by their ids.
    `token_bytes` and `token_ids` must cover the range and a few tokens around it (the whole request is fine).
    """
    stop = min(stop, len(token_bytes))
    parts: list[str] = []
    index = start
    while index < stop:
        if token_bytes[index] is None:
            end = index
            while end < stop and token_bytes[end] is None:
                end += 1
            parts.append(" ".join(map(str, token_ids[index:end])))
        else:
            end = index
            while end < stop and token_bytes[end] is not None:
                end += 1
            parts.append(_decoded(token_bytes, index, end))
        index = end
    return visible(" ".join(part for part in parts if part))


def _decoded(token_bytes: Sequence[bytes | None], start: int, stop: int) -> str:
    """Decodes tokens that have bytes, without a head that belongs before `start`, with a tail from behind `stop`."""
    data = b"".join(piece for piece in token_bytes[start:stop] if piece is not None)
    behind = _bytes_behind(token_bytes, stop)
    data = data[_num_missing_bytes(_bytes_before(token_bytes, start), data + behind) :]
    tail = behind[: _num_missing_bytes(data, behind)] if data else b""
    return (data + tail).decode("utf-8", errors="replace")


def _bytes_before(token_bytes: Sequence[bytes | None], stop: int) -> bytes:
    data = b""
    for index in range(stop - 1, -1, -1):
        piece = token_bytes[index]
        if piece is None or len(data) >= _MAX_CHARACTER_BYTES:
            break
        data = piece + data
    return data


def _bytes_behind(token_bytes: Sequence[bytes | None], start: int) -> bytes:
    data = b""
    for index in range(start, len(token_bytes)):
        piece = token_bytes[index]
        if piece is None or len(data) >= _MAX_CHARACTER_BYTES:
            break
        data += piece
    return data


def _num_missing_bytes(head: bytes, tail: bytes) -> int:
    """Returns how many leading bytes of `tail` complete a character that `head` leaves open; 0 where none do."""
    for num_bytes in range(1, min(_MAX_CHARACTER_BYTES, len(head)) + 1):
        open_end = head[-num_bytes:]
        if open_end[0] < 0xC0:  # no first byte of a longer character: look further back for the last one
            continue
        decoder = codecs.getincrementaldecoder("utf-8")(errors="strict")
        try:
            if decoder.decode(open_end):
                return 0  # complete already
            for num_taken in range(1, min(len(tail), _MAX_CHARACTER_BYTES - num_bytes) + 1):
                if decoder.decode(tail[num_taken - 1 : num_taken]):
                    return num_taken
        except UnicodeDecodeError:
            return 0
        return 0
    return 0
