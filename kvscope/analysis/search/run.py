"""One pass over a recording for a query, a stretch of steps at a time, so that it can be shown, left and cancelled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from kvscope import events as ev
from kvscope.analysis.event_subjects import block_of, request_of
from kvscope.analysis.search.anchors import anchors_of
from kvscope.analysis.search.hit import Hit, hit_in_text
from kvscope.analysis.search.outputs import OutputSearch
from kvscope.analysis.search.query import Query
from kvscope.analysis.search.texts import find_all
from kvscope.analysis.searched import Searched
from kvscope.analysis.text import token_text, visible
from kvscope.replay.timeline import Timeline

STRETCH_STEPS = 400
"""Some milliseconds of work in most recordings."""

_MIN_LETTERS_OF_EVENT = 3
_FREQUENT: frozenset[type[ev.Event]] = frozenset(
    {
        ev.StepStarted,
        ev.StepFinished,
        ev.TokensScheduled,
        ev.TokensSampled,
        ev.AdmissionEnded,
        ev.BlockAllocated,
        ev.BlockCached,
        ev.TokenTextRecorded,
    }
)
_REASON_KINDS: tuple[type[ev.Event], ...] = (
    ev.RequestRejected,
    ev.RequestBlocked,
    ev.RequestFinished,
    ev.RequestAborted,
    ev.BlockUncached,
    ev.StepFailed,
)


def search(timeline: Timeline, query: Query, first_step: int, last_step: int) -> Iterator[Hit | Searched]:
    """Yields hits in the order of their steps, and after each stretch how far it is."""
    sought = Stretches(timeline, query)
    for begin in range(first_step, last_step + 1, STRETCH_STEPS):
        end = min(begin + STRETCH_STEPS - 1, last_step)
        yield from sought.hits(begin, end)
        yield Searched(end)


class Stretches:
    """Searches one stretch of steps after another, and keeps what goes from one into the next."""

    def __init__(self, timeline: Timeline, query: Query) -> None:
        self._timeline = timeline
        self._query = query
        self._kinds = _kinds_named(query)
        self._anchors = anchors_of(query)
        self._outputs = (
            OutputSearch(timeline, query.pattern, is_literal=query.is_literal, anchors=self._anchors)
            if query.pattern is not None and "output" in query.places
            else None
        )
        self._refused: dict[str, tuple[int, str]] = {}
        """Of each request that is refused, the last step and the reason: a refusal that lasts is one hit."""

    def hits(self, first_step: int, last_step: int) -> list[Hit]:
        """Returns the hits of a stretch, in the order of their steps. It must follow the one before."""
        return sorted(self._within(first_step, last_step), key=lambda hit: hit.step)

    def pass_over(self, first_step: int, last_step: int) -> None:
        """Reads what comes before the first stretch: words and refusals may begin in it."""
        if first_step <= last_step:
            for _ in self._within(first_step, last_step):
                pass

    def _within(self, first_step: int, last_step: int) -> Iterator[Hit]:
        query, span = self._query, (first_step, last_step)
        if query.pattern is not None:
            yield from self._in_events(query.pattern, *span)
        if self._outputs is not None:
            yield from self._outputs.within(*span)
            for _, event in self._timeline.kind_events((ev.RequestFinished, ev.RequestAborted), *span):
                self._outputs.forget(getattr(event, "request_id", ""))
        if query.token_id is not None:
            yield from self._token(query.token_id, *span)
        if query.block_id is not None:
            for step, event in self._timeline.block_events(query.block_id, *span):
                yield _block_hit(step, event, query.block_id)
        if query.hash_digits is not None:
            yield from self._hash(query.hash_digits, *span)

    def _in_events(self, pattern: re.Pattern[str], first_step: int, last_step: int) -> Iterator[Hit]:
        places = self._query.places
        kinds: set[type[ev.Event]] = set(self._kinds)
        if places & {"request", "prompt"}:
            kinds |= {ev.RequestArrived, ev.RequestRejected}
        if "reason" in places:
            kinds |= set(_REASON_KINDS)
        for step, event in self._timeline.kind_events(kinds, first_step, last_step) if kinds else ():
            if isinstance(event, ev.RequestArrived):
                yield from self._in_arrival(pattern, step, event)
            elif (
                isinstance(event, ev.RequestRejected)
                and "request" in places
                and (found := self._first(pattern, event.request_id))
            ):
                yield hit_in_text(found, step, "request", event.request_id)
            if "reason" in places:
                yield from self._in_reasons(pattern, step, event)
            if type(event) in self._kinds:
                name = type(event).__name__
                yield Hit(
                    step=step,
                    kind="event",
                    request_id=request_of(event),
                    block_id=block_of(event),
                    match=name,
                    after=_figures(event),
                )

    def _in_arrival(self, pattern: re.Pattern[str], step: int, event: ev.RequestArrived) -> Iterator[Hit]:
        places, request_id = self._query.places, event.request_id
        if "request" in places and (found := self._first(pattern, request_id)):
            yield hit_in_text(found, step, "request", request_id)
        if "prompt" in places and self._may_be_in_prompt(event):
            found = self._first(pattern, self._prompt(event))
            if found:
                yield hit_in_text(found, step, "prompt", request_id)

    def _may_be_in_prompt(self, event: ev.RequestArrived) -> bool:
        """False where the prompt lies there as tokens alone, and none of them can bring the words."""
        anchors = self._anchors
        if anchors is None or event.prompt is not None:
            return True
        unknown = list(anchors.unknown(event.prompt_token_ids))
        if unknown:
            pieces = zip(unknown, self._timeline.token_bytes(unknown), strict=True)
            anchors.look_at({token_id: piece or b"" for token_id, piece in pieces})
        return anchors.are_in(event.prompt_token_ids)

    def _first(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        return next((found for found, _ in find_all(pattern, text, is_literal=self._query.is_literal)), None)

    def _prompt(self, event: ev.RequestArrived) -> str:
        if event.prompt is not None:
            return event.prompt
        pieces = self._timeline.token_bytes(event.prompt_token_ids)
        if None in pieces:
            return token_text(pieces, event.prompt_token_ids, 0, len(pieces))
        return b"".join(piece for piece in pieces if piece is not None).decode(errors="replace")

    def _in_reasons(self, pattern: re.Pattern[str], step: int, event: ev.Event) -> Iterator[Hit]:
        for reason in _reasons_of(event):
            found = self._first(pattern, reason)
            if found is None:
                continue
            if isinstance(event, ev.RequestBlocked):
                before = self._refused.get(event.request_id)
                self._refused[event.request_id] = (step, reason)
                if before == (step - 1, reason):
                    continue
            hit = hit_in_text(found, step, "reason", _request_of(event))
            yield Hit(
                step=step,
                kind="reason",
                request_id=hit.request_id,
                before=f"{_reason_word(event)}: {hit.before}",
                match=hit.match,
                after=hit.after,
            )

    def _token(self, token_id: int, first_step: int, last_step: int) -> Iterator[Hit]:
        text = _token_words(self._timeline, token_id)
        for step, event in self._timeline.kind_events((ev.RequestArrived,), first_step, last_step):
            assert isinstance(event, ev.RequestArrived)
            num_found = event.prompt_token_ids.count(token_id)
            if num_found:
                times = f", {num_found} times" if num_found > 1 else ""
                after = f" {text} in the prompt{times}"
                yield Hit(step=step, kind="token", request_id=event.request_id, match=str(token_id), after=after)
        for step, places in self._timeline.steps_sampling(token_id, first_step, last_step):
            for request_id in self._sampled_by(step, places):
                after = f" {text} generated"
                yield Hit(step=step, kind="token", request_id=request_id, match=str(token_id), after=after)

    def _sampled_by(self, step: int, places: list[int]) -> Iterator[str]:
        for _, event in self._timeline.kind_events((ev.TokensSampled,), step, step):
            if isinstance(event, ev.TokensSampled):
                counts = event.num_tokens if event.num_tokens is not None else (1,) * len(event.request_ids)
                owners = [name for name, count in zip(event.request_ids, counts, strict=True) for _ in range(count)]
                yield from (owners[place] for place in places)

    def _hash(self, digits: str, first_step: int, last_step: int) -> Iterator[Hit]:
        for step, event in self._timeline.hash_events(digits, first_step, last_step):
            for block_id, block_hash in zip(event.block_ids, event.block_hashes, strict=True):
                written = f"{block_hash:016x}"
                if written.startswith(digits):
                    verb = "published in" if isinstance(event, ev.BlockCached) else "evicted from"
                    yield Hit(
                        step=step,
                        kind="hash",
                        request_id=event.request_id,
                        block_id=block_id,
                        match=digits,
                        after=f"{written[len(digits) :]} {verb} block {block_id}",
                    )


def _kinds_named(query: Query) -> frozenset[type[ev.Event]]:
    """Returns the kinds of events whose names match; those of every step only where events are asked for."""
    if query.pattern is None or "event" not in query.places:
        return frozenset()
    if query.is_literal and not query.has_frequent_events and len(query.text) < _MIN_LETTERS_OF_EVENT:
        return frozenset()
    kinds: tuple[type[ev.Event], ...] = get_args(ev.Event)
    found = {kind for kind in kinds if query.pattern.search(kind.__name__)}
    return frozenset(found if query.has_frequent_events else found - _FREQUENT)


def _request_of(event: ev.Event) -> str | None:
    return getattr(event, "request_id", None)


def _reasons_of(event: ev.Event) -> Iterator[str]:
    match event:
        case ev.RequestRejected():
            yield from (text for text in (event.reason, event.message) if text)
        case ev.RequestBlocked() | ev.BlockUncached():
            yield event.reason
        case ev.RequestFinished():
            yield event.reason if event.stop is None else f"{event.reason} {event.stop}"
        case ev.RequestAborted():
            yield "abort"
        case ev.StepFailed():
            yield f"{event.error_type}: {event.message}"
        case _:
            pass


def _reason_word(event: ev.Event) -> str:
    match event:
        case ev.RequestRejected():
            return "rejected"
        case ev.RequestBlocked():
            return "refused"
        case ev.BlockUncached():
            return "taken back"
        case ev.StepFailed():
            return "failed"
        case _:
            return "ended"


def _figures(event: ev.Event) -> str:
    """Returns an event's plain figures, as they are named."""
    shown: list[str] = []
    for name in type(event).__struct_fields__:
        value: Any = getattr(event, name)
        if name != "request_id" and isinstance(value, str | int) and not isinstance(value, bool):
            shown.append(f"{name}={str(value)[:24]}")
    return visible(" " + " ".join(shown[:4])) if shown else ""


def _block_hit(step: int, event: ev.Event, block_id: int) -> Hit:
    verbs: dict[type[ev.Event], str] = {
        ev.BlockAllocated: "allocated",
        ev.BlockCached: "published",
        ev.BlockEvicted: "evicted",
        ev.BlockTouched: "hit",
        ev.BlockReleased: "released",
        ev.BlockUncached: "taken back from the cache",
    }
    return Hit(
        step=step,
        kind="block",
        request_id=_request_of(event),
        block_id=block_id,
        match=str(block_id),
        after=f" {verbs[type(event)]}",
    )


def _token_words(timeline: Timeline, token_id: int) -> str:
    piece = timeline.token_bytes([token_id])[0]
    return "without text" if piece is None else f"“{visible(piece.decode(errors='replace'))}”"
