"""Looks for a pattern in what requests generate, as it comes: each match belongs to the step that completed it.

Where the pattern is plain words, tokens that cannot hold them are not decoded, see `anchors`.
"""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvscope.analysis.search.anchors import Anchors
from kvscope.analysis.search.hit import Hit, hit_in_text
from kvscope.analysis.search.texts import find_all
from kvscope.events import Event, TokensSampled
from kvscope.replay.timeline import Timeline

_OVERLAP = 200
"""Characters of a request's text that are kept for matches that begin there: longer ones are not found."""

_CONTEXT = 40
"""Tokens, none of them empty, that are kept beside as many as the words may have: what is shown before a hit."""

_MAX_KNOWN = 1 << 18
"""Tokens whose texts are kept: more than most vocabularies have."""

Pieces = tuple[Sequence[int], Sequence[int]]
"""Steps, and the token that came in each of them."""


def _new_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")


@dataclass(slots=True)
class _Text:
    """The end of what a request has generated so far; a character that is not complete waits in the decoder."""

    end: str = ""
    skipped: tuple[int, ...] = ()
    """The tokens behind the end that were not decoded; the last of them where there were many."""
    has_anchor: bool = False
    """Among the last tokens is one that words may begin with, of which the next ones bring the rest."""
    decoder: codecs.IncrementalDecoder = field(default_factory=_new_decoder)


class OutputSearch:
    """Takes one stretch of steps after another."""

    def __init__(
        self, timeline: Timeline, pattern: re.Pattern[str], *, is_literal: bool, anchors: Anchors | None = None
    ) -> None:
        self._timeline = timeline
        self._anchors = anchors
        self._known: dict[int, bytes] = {}
        self._num_kept = 0 if anchors is None else anchors.num_bytes + _CONTEXT
        self._unread: list[tuple[int, Event]] = []
        """The last steps, where no text was looked at: what begins there may end in the next ones."""
        self._pattern = pattern
        self._is_literal = is_literal
        self._texts: defaultdict[str, _Text] = defaultdict(_Text)

    def within(self, first_step: int, last_step: int) -> Iterator[Hit]:
        """Yields what is found in the stretch, request by request."""
        sampled = list(self._timeline.kind_events((TokensSampled,), first_step, last_step))
        seen: set[int] = set().union(*(event.token_ids for _, event in sampled if isinstance(event, TokensSampled)))
        self._learn(seen)
        if self._may_skip_all(seen):
            self._unread += sampled
            self._keep_ends(
                self._unread[: -self._num_kept],
                {name for _, event in self._unread[-self._num_kept :] for name in _ids(event)},
            )
            self._unread = self._unread[-self._num_kept :]
            return
        self._keep_ends(self._unread)
        self._unread = []
        for request_id, of_request in _by_request(sampled).items():
            if not self._may_skip(request_id, of_request):
                yield from self._in_request(request_id, of_request)

    def _learn(self, token_ids: set[int]) -> None:
        missing = list(token_ids - self._known.keys())
        if not missing:
            return
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
            missing = list(token_ids)
        found = zip(missing, self._timeline.token_bytes(missing), strict=True)
        new = {token_id: piece or b"" for token_id, piece in found}
        self._known.update(new)
        if self._anchors is not None:
            self._anchors.look_at(new)

    def _may_skip_all(self, token_ids: set[int]) -> bool:
        """True where no request's words can be in these tokens, nor begin before them."""
        anchors = self._anchors
        return (
            anchors is not None
            and not anchors.are_in(token_ids)
            and not any(text.has_anchor for text in self._texts.values())
        )

    def _keep_ends(self, unread: list[tuple[int, Event]], but_of: Collection[str] = ()) -> None:
        """Keeps the last tokens of requests in steps that are not looked at."""
        if all(name in but_of for _, event in unread for name in _ids(event)):
            return
        for request_id, pieces in _by_request(unread).items():
            if request_id not in but_of:
                self._skip(self._texts[request_id], pieces)

    def _may_skip(self, request_id: str, pieces: list[Pieces]) -> bool:
        """True where the words can neither be in these tokens nor begin before them and end there; keeps their end."""
        anchors, text = self._anchors, self._texts[request_id]
        if anchors is None or text.has_anchor or any(anchors.are_in(some) for _, some in pieces):
            return False
        self._skip(text, pieces)
        return True

    def _skip(self, text: _Text, pieces: list[Pieces]) -> None:
        text.skipped = _last_tokens(pieces, self._num_kept, text.skipped)
        is_enough = len(text.skipped) == self._num_kept
        text.end = "" if is_enough else text.end + text.decoder.decode(b"", final=True)
        text.decoder = _new_decoder()

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._texts.pop(request_id, None)

    def _in_request(self, request_id: str, pieces: list[Pieces]) -> Iterator[Hit]:
        text, known = self._texts[request_id], self._known
        if text.skipped:
            self._learn(set(text.skipped))
            passed_over = text.decoder.decode(b"".join([known[token_id] for token_id in text.skipped]))
            text.end = (text.end + passed_over)[-_OVERLAP:]
            text.skipped = ()
        before = text.decoder.getstate()
        old = text.end
        whole = old + text.decoder.decode(b"".join([known[token_id] for _, some in pieces for token_id in some]))
        for found, begin in find_all(self._pattern, whole, is_literal=self._is_literal):
            end = begin + found.end()
            if end > len(old):
                step = _step_of(pieces, known, before, end - len(old))
                yield hit_in_text(found, step, "output", request_id)
        text.end = whole[-_OVERLAP:]
        if self._anchors is not None:
            text.has_anchor = self._anchors.are_in(_last_tokens(pieces, self._anchors.num_bytes))


def _ids(event: Event) -> Sequence[str]:
    return event.request_ids if isinstance(event, TokensSampled) else ()


def _last_tokens(pieces: list[Pieces], num_tokens: int, before: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Returns the last tokens of what was there before and of the pieces."""
    found: tuple[int, ...] = ()
    for _, some in reversed(pieces):
        found = (*some[max(len(some) + len(found) - num_tokens, 0) :], *found)
        if len(found) >= num_tokens:
            return found
    return (*before[max(len(before) + len(found) - num_tokens, 0) :], *found)


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
