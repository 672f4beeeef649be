"""What happened to one request, as short sentences with their steps. Knows only what its own events say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvscope import events as ev
from kvscope.analysis.admission_sentences import hit_owners
from kvscope.analysis.history import request_history
from kvscope.analysis.memory import remembered
from kvscope.analysis.queue_sentences import preempted
from kvscope.analysis.spans import Part, Sentence, count, dim, figure, say, strong
from kvscope.analysis.spans import step as step_span
from kvscope.analysis.text import visible
from kvscope.analysis.verdict_words import refused_words
from kvscope.replay.timeline import Moment, Timeline

_MAX_CAUSES = 1000


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to the request, at `step` first."""

    step: int
    sentence: Sentence


@dataclass(slots=True)
class _Refusals:
    """Refusals in a row, of one reason."""

    first_step: int
    last_step: int
    number: int
    last: ev.RequestBlocked


def happenings(timeline: Timeline, moment: Moment, request_id: str) -> list[Happening]:
    """Returns what happened to a request up to the step, oldest first. Refusals in a row are one sentence."""
    history = request_history(timeline, request_id, moment.step)
    if history is None:
        return []
    row = timeline.request(request_id)
    told = _Teller(timeline, moment, request_id, row.first_token_step if row is not None else None)
    for at, event in history.until(moment.step):
        told.hear(at, event)
    return told.finish()


class _Teller:
    """Hears the events of one request in order and tells what is worth telling."""

    def __init__(self, timeline: Timeline, moment: Moment, request_id: str, first_token_step: int | None) -> None:
        self._timeline = timeline
        self._moment = moment
        self._request_id = request_id
        self._first_token_step = first_token_step
        self._told: list[Happening] = []
        self._refusals: _Refusals | None = None
        self._waiting_since = 0
        self._preempted_at: int | None = None
        self._hit: ev.PrefixCacheHit | None = None

    def finish(self) -> list[Happening]:
        self._tell_refusals()
        self._tell_first_token(self._moment.step + 1)
        return self._told

    def hear(self, at: int, event: ev.Event) -> None:
        if isinstance(event, ev.RequestBlocked):
            self._refused(at, event)
            return
        if isinstance(event, ev.PrefixCacheHit):
            self._hit = event
        for sentence in self._sentences(at, event):
            self._tell_refusals()
            self._tell_first_token(at)
            self._told.append(Happening(at, sentence))

    def _sentences(self, at: int, event: ev.Event) -> Iterator[Sentence]:
        match event:
            case ev.RequestArrived():
                self._waiting_since = at
                words = f"arrived with {count(len(event.prompt_token_ids), 'prompt token')}"
                yield Sentence("↓", "arrived", say(words))
            case ev.RequestAdmitted() | ev.RequestResumed():
                yield self._admitted(at, event)
                self._hit = None
            case ev.RequestPreempted():
                if event.request_id == self._request_id:
                    self._waiting_since = self._preempted_at = at
                yield preempted(event, _cause(self._timeline, at, event), self._moment.state)
            case ev.RequestFinished():
                stop = f": {visible(event.stop)}" if event.stop else ""
                words = f"finished ({event.reason}{stop}) with {count(event.num_output_tokens, 'token')}"
                yield Sentence("✓", "finished", say(words))
            case ev.RequestAborted():
                yield Sentence("×", "aborted", say("aborted"))
            case ev.BlockUncached():
                words = f"{count(len(event.block_ids), 'block')} taken back from the prefix cache"
                yield Sentence("░", "cached", say(words))
            case _:
                pass

    def _admitted(self, at: int, event: ev.RequestAdmitted | ev.RequestResumed) -> Sentence:
        num_waited = at - self._waiting_since
        verb = "resumed" if isinstance(event, ev.RequestResumed) else "admitted"
        parts: list[Part] = [verb, f" after {count(num_waited, 'step')}: " if num_waited else " at once: "]
        if self._hit is None:
            parts.append("no hit")
        else:
            parts += [strong(f"{count(event.num_hit_tokens, 'token')} hit"), " in ", *self._hit_words(at, self._hit)]
        num_left = event.num_tokens - event.num_hit_tokens - event.num_scheduled_tokens
        parts.append(dim(f", {event.num_scheduled_tokens} scheduled"))
        if num_left > 0:
            parts.append(dim(f", {num_left} left to prefill"))
        return Sentence("→" if self._hit is None else "●", "admitted" if self._hit is None else "hit", say(*parts))

    def _hit_words(self, at: int, hit: ev.PrefixCacheHit) -> list[Part]:
        """Whose the blocks were is known while the request still holds them; later only which were its own."""
        request = self._moment.state.requests.get(self._request_id)
        if request is not None and request.admitted_step == at and request.block_ids:
            return hit_owners(self._moment.state, self._request_id, hit.block_ids)
        words: list[Part] = [count(len(hit.block_ids), "block")]
        if hit.num_own_hit_tokens == hit.num_hit_tokens:
            words.append(" of its own")
        elif hit.num_own_hit_tokens:
            words.append(f" ({count(hit.num_own_hit_tokens, 'token')} its own)")
        return words

    def _refused(self, at: int, event: ev.RequestBlocked) -> None:
        if event.reason == "preempted" and at == self._preempted_at:
            return  # said by the preemption
        known = self._refusals
        if known is not None and known.last.reason == event.reason:
            known.last_step, known.last = at, event
            known.number += 1
        else:
            self._tell_refusals()
            self._refusals = _Refusals(at, at, 1, event)

    def _tell_refusals(self) -> None:
        refusals, self._refusals = self._refusals, None
        if refusals is None:
            return
        parts: list[Part] = ["refused"]
        if refusals.number > 1:
            parts += [" ", figure(f"{refusals.number}×"), " up to ", step_span(refusals.last_step)]
        parts += [dim(": "), *refused_words(refusals.last, is_victim=False)]
        self._told.append(Happening(refusals.first_step, Sentence("✗", "refused", say(*parts))))

    def _tell_first_token(self, before: int) -> None:
        """Puts the first token in its place: it has no event of its own among those of the request."""
        first = self._first_token_step
        if first is not None and first < before and first <= self._moment.step:
            self._first_token_step = None
            self._told.append(Happening(first, Sentence("━", "note", say("first token"))))


def _cause(timeline: Timeline, step: int, preemption: ev.RequestPreempted) -> ev.AllocationFailed | None:
    """Returns the failed allocation that a preemption answered: an event of the beneficiary, just before it."""
    known = remembered(timeline).kept("causes")
    key = (step, preemption.request_id)
    if key not in known:
        cause: ev.AllocationFailed | None = None
        for _, events in timeline.select_events((ev.AllocationFailed, ev.RequestPreempted), step, step):
            for event in events:
                if isinstance(event, ev.AllocationFailed) and event.request_id == preemption.beneficiary_id:
                    cause = event
                elif event == preemption:
                    break
        if len(known) >= _MAX_CAUSES:
            known.clear()
        known[key] = cause
    found = known[key]
    return found if isinstance(found, ev.AllocationFailed) else None
