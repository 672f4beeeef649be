"""What an event is about: its request, its block, its fields, and the sentence of the step that tells of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kvscope import events as ev
from kvscope.analysis.spans import Entity, Sentence, Tone
from kvscope.analysis.text import visible

_TONES: dict[type[ev.Event], tuple[Tone, ...]] = {
    ev.EngineConfigured: ("note",),
    ev.RequestArrived: ("arrived",),
    ev.RequestRejected: ("refused",),
    ev.RequestAborted: ("aborted",),
    ev.PrefixLookedUp: ("hit", "admitted", "refused"),
    ev.AllocationFailed: ("preempted", "refused"),
    ev.RequestBlocked: ("refused",),
    ev.AdmissionEnded: ("budget", "refused", "stalled"),
    ev.PrefixCacheHit: ("hit",),
    ev.RequestAdmitted: ("hit", "admitted"),
    ev.RequestResumed: ("hit", "admitted"),
    ev.RequestPreempted: ("preempted",),
    ev.BlockAllocated: ("new",),
    ev.BlockTouched: ("hit",),
    ev.BlockReleased: ("preempted", "finished", "aborted"),
    ev.BlockCached: ("cached",),
    ev.BlockEvicted: ("evicted",),
    ev.BlockUncached: ("cached",),
    ev.TokensScheduled: ("prefill",),
    ev.DraftsVerified: ("drafts",),
    ev.RequestFinished: ("finished",),
    ev.KVTransferStarted: ("transfer",),
    ev.KVTransferFinished: ("transfer",),
    ev.StepFailed: ("failed",),
}
"""Of which tones the sentence is that tells of an event, the likeliest first; of the others no sentence tells."""

_TOGETHER: tuple[Tone, ...] = ("new", "cached", "evicted", "prefill", "drafts", "budget", "stalled")
"""Tones whose sentences tell of several requests at once and may leave some names out."""

_MAX_LIST = 24
"""Values of a list that are written out."""


def request_of(event: ev.Event) -> str | None:
    """Returns the request that an event is about; of a batch's events the first one of it."""
    request_id: str | None = getattr(event, "request_id", None)
    if request_id is None and isinstance(event, ev.TokensScheduled | ev.TokensSampled):
        return event.request_ids[0] if event.request_ids else None
    return request_id


def blocks_of(event: ev.Event) -> tuple[int, ...]:
    """Returns the blocks that an event names."""
    if isinstance(event, ev.BlockReleased):
        return event.freed_to_head + event.freed_to_tail + event.still_held
    block_ids: tuple[int, ...] = getattr(event, "block_ids", ())
    return block_ids


def block_of(event: ev.Event) -> int | None:
    """Returns the first block that an event names."""
    return next(iter(blocks_of(event)), None)


def names_request(event: ev.Event, request_id: str) -> bool:
    """True where the event is about the request, for its benefit, or about a batch that it is in."""
    if getattr(event, "request_id", None) == request_id or getattr(event, "beneficiary_id", None) == request_id:
        return True
    return isinstance(event, ev.TokensScheduled | ev.TokensSampled) and request_id in event.request_ids


def sentence_of(sentences: Sequence[Sentence], event: ev.Event) -> int | None:
    """Returns the number of the step's sentence that tells of an event; None where none does."""
    request_id = getattr(event, "request_id", None)
    for tone in _TONES.get(type(event), ()):
        told = [index for index, sentence in enumerate(sentences) if sentence.tone == tone]
        if request_id is None:
            if told:
                return told[0]
            continue
        entity = Entity("request", request_id)
        by_name = [index for index in told if entity in sentences[index].entities]
        if by_name:
            return _of_its_glyph(sentences, by_name, event)
        if told and (tone in _TOGETHER or (isinstance(event, ev.RequestBlocked) and event.reason == "preempted")):
            return told[0]  # the sentence "Nobody admitted" names nobody
    return None


def _of_its_glyph(sentences: Sequence[Sentence], told: list[int], event: ev.Event) -> int:
    """Publications and what was taken back are of one tone: what was taken back says so."""
    if isinstance(event, ev.BlockCached | ev.BlockUncached):
        is_back = isinstance(event, ev.BlockUncached)
        for index in told:
            if ("taken back" in sentences[index].text) == is_back:
                return index
    return told[0]


def field_words(event: ev.Event) -> list[tuple[str, str]]:
    """Returns the event's fields as they were recorded, `name` and visible text; long lists are cut and counted."""
    fields = msgspec.to_builtins(event)
    fields.pop("type", None)
    return [(name, visible(_value(value))) for name, value in fields.items()]


def _value(value: object) -> str:
    if isinstance(value, list | tuple) and len(value) > _MAX_LIST:
        return f"{msgspec.json.encode(value[:_MAX_LIST]).decode()[:-1]},… {len(value)} in all]"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
