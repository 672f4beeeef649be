"""The text of a request's tokens, any range of them, without reading more than is shown."""

from __future__ import annotations

from array import array

from kvscope.analysis.memory import TOKEN_BYTES, remembered
from kvscope.analysis.text import token_text
from kvscope.replay.timeline import Timeline

_MARGIN = 4
"""Tokens read on either side: as many as the bytes of one character, which may be spread over them."""

_MAX_TEXTS = 20_000


def request_token_ids(timeline: Timeline, request_id: str, step: int, start: int, stop: int) -> list[int]:
    """Returns the tokens `start:stop` of a request; fewer where it has not so many (at the end of the recording)."""
    packed = remembered(timeline).packed_tokens(timeline, request_id, step, stop)
    tokens = array("I")
    tokens.frombytes(packed[max(start, 0) * TOKEN_BYTES : stop * TOKEN_BYTES])
    return tokens.tolist()


def request_text(timeline: Timeline, request_id: str, step: int, start: int, stop: int) -> str:
    """Returns the visible text of tokens `start:stop`, whole characters, each in the range that it begins in."""
    texts = remembered(timeline).kept("texts")
    known = texts.get((request_id, start, stop))
    if isinstance(known, str):
        return known
    first = max(start - _MARGIN, 0)
    token_ids = request_token_ids(timeline, request_id, step, first, stop + _MARGIN)
    pieces = timeline.token_bytes(token_ids)
    text = token_text(pieces, token_ids, start - first, stop - first)
    if first + len(token_ids) == stop + _MARGIN and None not in pieces:  # nothing that comes later can change it
        if len(texts) >= _MAX_TEXTS:
            texts.clear()
        texts[request_id, start, stop] = text
    return text
