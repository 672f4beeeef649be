"""Looks for a pattern in what requests generate, as it comes: each match belongs to the step that completed it."""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvscope.analysis.search.hit import Hit, hit_in_text
from kvscope.analysis.search.texts import find_all
from kvscope.events import Event, TokensSampled
from kvscope.replay.timeline import Timeline

_OVERLAP = 200
"""Characters of a request's text that are kept for matches that begin there: longer ones are not found."""

Pieces = tuple[Sequence[int], Sequence[int]]
"""Steps, and the token that came in each of them."""


def _new_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")


@dataclass(slots=True)
class _Text:
    """The end of what a request has generated so far; a character that is not complete waits in the decoder."""

    end: str = ""
    decoder: codecs.IncrementalDecoder = field(default_factory=_new_decoder)


class OutputSearch:
    """Takes one stretch of steps after another."""

    def __init__(self, timeline: Timeline, pattern: re.Pattern[str], *, is_literal: bool) -> None:
        self._timeline = timeline
        self._pattern = pattern
        self._is_literal = is_literal
        self._texts: defaultdict[str, _Text] = defaultdict(_Text)

    def within(self, first_step: int, last_step: int) -> Iterator[Hit]:
        """Yields what is found in the stretch, request by request."""
        pieces = _by_request(self._timeline.kind_events((TokensSampled,), first_step, last_step))
        distinct = list({token_id for of_request in pieces.values() for _, some in of_request for token_id in some})
        known = {token_id: piece or b"" for token_id, piece in self._bytes_of(distinct)}
        for request_id, of_request in pieces.items():
            yield from self._in_request(request_id, of_request, known)

    def _bytes_of(self, token_ids: list[int]) -> Iterator[tuple[int, bytes | None]]:
        return zip(token_ids, self._timeline.token_bytes(token_ids), strict=True)

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._texts.pop(request_id, None)

    def _in_request(self, request_id: str, pieces: list[Pieces], known: Mapping[int, bytes]) -> Iterator[Hit]:
        text = self._texts[request_id]
        before = text.decoder.getstate()
        old = text.end
        whole = old + text.decoder.decode(b"".join([known[token_id] for _, some in pieces for token_id in some]))
        for found, begin in find_all(self._pattern, whole, is_literal=self._is_literal):
            end = begin + found.end()
            if end > len(old):
                step = _step_of(pieces, known, before, end - len(old))
                yield hit_in_text(found, step, "output", request_id)
        text.end = whole[-_OVERLAP:]


def _by_request(sampled: Iterable[tuple[int, Event]]) -> dict[str, list[Pieces]]:
    """Returns each request's tokens. A batch that stays the same for some steps is turned over at once."""
    pieces: defaultdict[str, list[Pieces]] = defaultdict(list)
    steps: list[int] = []
    rows: list[Sequence[int]] = []
    request_ids: tuple[str, ...] = ()

    def turn_over() -> None:
        for request_id, column in zip(request_ids, zip(*rows, strict=True), strict=True) if rows else ():
            pieces[request_id].append((steps, column))

    for step, event in sampled:
        assert isinstance(event, TokensSampled)
        if rows and event.num_tokens is None and event.request_ids == request_ids:
            steps.append(step)
            rows.append(event.token_ids)
            continue
        turn_over()
        steps, rows, request_ids = [step], [event.token_ids], event.request_ids
        if event.num_tokens is not None:
            rows, at = [], 0
            for request_id, count in zip(event.request_ids, event.num_tokens, strict=True):
                pieces[request_id].append(([step] * count, event.token_ids[at : at + count]))
                at += count
    turn_over()
    return pieces


def _step_of(pieces: list[Pieces], known: Mapping[int, bytes], state: tuple[bytes, int], num_characters: int) -> int:
    """Returns the step whose token completed so many characters."""
    decoder = _new_decoder()
    decoder.setstate(state)
    decoded = step = 0
    for steps, token_ids in pieces:
        for step, token_id in zip(steps, token_ids, strict=True):
            decoded += len(decoder.decode(known[token_id]))
            if decoded >= num_characters:
                return step
    return step
