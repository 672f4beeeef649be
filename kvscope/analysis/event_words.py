"""Each event as one short sentence: what it says by itself, without the state around it.

The sentences of a step (`kvscope.analysis.sentences`) put events together and explain; these are its raw material in
words, one for each event, in the order in which things happened.
"""

from __future__ import annotations

from typing import assert_never

from kvscope import events as ev
from kvscope.analysis.sentences import milliseconds
from kvscope.analysis.spans import (
    Part,
    Sentence,
    Tone,
    block,
    block_list,
    count,
    dim,
    dotted,
    figure,
    request,
    say,
    strong,
)
from kvscope.analysis.text import visible
from kvscope.analysis.verdict_words import refused_words

_MAX_RUNS = 12
"""Ranges of blocks that are named; the rest is counted."""
_MAX_SHARES = 8
"""Requests of a batch that are named."""


def event_sentence(event: ev.Event) -> Sentence:
    """Returns what the event says."""
    glyph, tone, parts = _said(event)
    return Sentence(glyph, tone, say(*parts))


Said = tuple[str, Tone, list[Part]]


def _said(event: ev.Event) -> Said:
    match event:
        case ev.EngineConfigured() | ev.TokenTextRecorded() | ev.StepStarted() | ev.StepFinished() | ev.StepFailed():
            return _of_the_step(event)
        case (
            ev.RequestArrived()
            | ev.RequestRejected()
            | ev.RequestAborted()
            | ev.RequestAdmitted()
            | ev.RequestResumed()
            | ev.RequestPreempted()
            | ev.RequestFinished()
        ):
            return _of_a_request(event)
        case (
            ev.PrefixLookedUp()
            | ev.PrefixCacheHit()
            | ev.AllocationFailed()
            | ev.RequestBlocked()
            | ev.AdmissionEnded()
        ):
            return _of_admission(event)
        case (
            ev.BlockAllocated()
            | ev.BlockTouched()
            | ev.BlockReleased()
            | ev.BlockCached()
            | ev.BlockEvicted()
            | ev.BlockUncached()
            | ev.KVTransferStarted()
            | ev.KVTransferFinished()
        ):
            return _of_blocks(event)
        case ev.TokensScheduled() | ev.TokensSampled() | ev.DraftsProposed() | ev.DraftsVerified():
            return _of_tokens(event)
        case _:
            assert_never(event)


def _of_the_step(
    event: ev.EngineConfigured | ev.TokenTextRecorded | ev.StepStarted | ev.StepFinished | ev.StepFailed,
) -> Said:
    match event:
        case ev.EngineConfigured():
            size = f"{count(max(event.num_gpu_blocks - 1, 0), 'block')} × {count(event.block_size, 'token')}"
            what = f"{visible(event.model) or 'no model'} on {visible(event.device)} ({visible(event.dtype)})"
            return "·", "note", [f"engine configured: {what}, ", figure(size)]
        case ev.TokenTextRecorded():
            return "·", "note", [dim(f"the text of {count(len(event.token_ids), 'token')} was written down")]
        case ev.StepStarted():
            return "·", "note", ["schedule() began with a budget of ", figure(count(event.token_budget, "token"))]
        case ev.StepFinished():
            names = ("schedule", "forward", "sample", "update")
            clock = [f"{name} {milliseconds(getattr(event, f'{name}_ns'))}" for name in names]
            return "·", "note", ["the step is complete", dim(f": {', '.join(clock)}")]
        case ev.StepFailed():
            message = f"{visible(event.error_type)}: {visible(event.message)}"
            return "✖", "failed", [strong(f"the step failed in {event.phase}:"), f" {message}"]


def _of_a_request(
    event: ev.RequestArrived
    | ev.RequestRejected
    | ev.RequestAborted
    | ev.RequestAdmitted
    | ev.RequestResumed
    | ev.RequestPreempted
    | ev.RequestFinished,
) -> Said:
    who = request(event.request_id)
    parts: list[Part]
    match event:
        case ev.RequestArrived():
            size = f"{count(len(event.prompt_token_ids), 'prompt token')}, up to {event.max_tokens} to generate"
            place = f", place {event.queue_position + 1} in the waiting queue"
            priority = f", priority {event.priority}" if event.priority else ""
            return "↓", "arrived", [who, " arrived with ", figure(size), dim(place + priority)]
        case ev.RequestRejected():
            message = f"; {visible(event.message)}" if event.message else ""
            parts = [figure(f"{event.have} > {event.limit}"), dim(f" ({visible(event.reason)}){message}")]
            return "✗", "refused", [who, " rejected: ", *parts]
        case ev.RequestAborted():
            doing = {"WAITING": "while it waited", "RUNNING": "while it ran", "PREEMPTED": "while it waited to resume"}
            late = dim(", in the middle of the step") if event.during_execution else ""
            return "×", "aborted", [who, f" aborted {doing[event.status]}", late]
        case ev.RequestAdmitted() | ev.RequestResumed():
            verb = " resumed: " if isinstance(event, ev.RequestResumed) else " admitted: "
            tone: Tone = "hit" if event.num_hit_tokens else "admitted"
            parts = [
                figure(event.num_hit_tokens),
                f" of its {count(event.num_tokens, 'token')} hit, ",
                figure(event.num_scheduled_tokens),
                " scheduled",
            ]
            return "●" if event.num_hit_tokens else "→", tone, [who, verb, *parts]
        case ev.RequestPreempted():
            whom: list[Part] = ["itself"] if event.beneficiary_id == event.request_id else []
            whom = whom or ["for ", request(event.beneficiary_id)]
            freed = f": frees {event.num_freed_blocks} of {count(event.num_table_blocks, 'block')}, "
            parts = [freed, figure(f"{count(event.num_lost_tokens, 'token')} lost")]
            back = dim(f", back to place {event.queue_position + 1} of the waiting queue")
            return "▲", "preempted", [who, " preempted ", *whom, *parts, back]
        case ev.RequestFinished():
            end = event.reason + (f": {visible(event.stop)}" if event.stop else "")
            parts = [f" finished ({end}) with ", figure(count(event.num_output_tokens, "token"))]
            return "✓", "finished", [who, *parts]


def _of_admission(
    event: ev.PrefixLookedUp | ev.PrefixCacheHit | ev.AllocationFailed | ev.RequestBlocked | ev.AdmissionEnded,
) -> Said:
    parts: list[Part]
    match event:
        case ev.PrefixLookedUp():
            who = request(event.request_id)
            if not event.block_ids:
                return "·", "note", [who, " looked up in the prefix cache: nothing found"]
            free = f", {event.num_free_hit_blocks} of them free" if event.num_free_hit_blocks else ""
            found = figure(count(event.num_hit_tokens, "token"))
            parts = [f" in {count(len(event.block_ids), 'block')}", dim(f"{free}: "), *_listed(event.block_ids)]
            return "·", "note", [who, " looked up in the prefix cache: ", found, *parts]
        case ev.PrefixCacheHit():
            own = f" ({event.num_own_hit_tokens} its own)" if event.num_own_hit_tokens else ""
            parts = [figure(count(event.num_hit_tokens, "token")), f"{own} in {count(len(event.block_ids), 'block')}"]
            return "●", "hit", [request(event.request_id), " hits ", *parts, dim(": "), *_listed(event.block_ids)]
        case ev.AllocationFailed():
            wm = f"+{event.watermark_blocks}" if event.watermark_blocks else ""
            need = event.need_full if event.reason.startswith("full_isl") else event.need_step
            needs = figure(f"{need}{wm} > {event.num_free_blocks} free")
            tokens = f" for {count(event.num_tokens, 'token')}" if event.num_tokens else ""
            doing = "while it ran" if event.phase == "running" else "at the head of the waiting queue"
            vainly = f" got no blocks{tokens} {doing}: needs "
            return "✗", "refused", [request(event.request_id), vainly, needs, dim(f" ({event.reason})")]
        case ev.RequestBlocked():
            words = refused_words(event, is_victim=False)
            parts = [" not admitted: ", *words, dim(f" ({event.reason})")]
            return "✗", "refused", [request(event.request_id), *parts]
        case ev.AdmissionEnded():
            left = f"{event.num_waiting} wait, {count(event.token_budget_left, 'token')} of the budget left"
            return "=", "budget", ["admission ended ", dim(f"({event.reason})"), ": ", figure(left)]


def _listed(block_ids: tuple[int, ...]) -> list[Part]:
    return block_list(block_ids, _MAX_RUNS)


def _of_blocks(
    event: ev.BlockAllocated
    | ev.BlockTouched
    | ev.BlockReleased
    | ev.BlockCached
    | ev.BlockEvicted
    | ev.BlockUncached
    | ev.KVTransferStarted
    | ev.KVTransferFinished,
) -> Said:
    who = request(event.request_id)
    parts: list[Part]
    match event:
        case ev.BlockAllocated():
            parts = [figure(count(len(event.block_ids), "block")), " from the head of the free queue", dim(": ")]
            return "+", "new", [who, " took ", *parts, *_listed(event.block_ids)]
        case ev.BlockTouched():
            num_free = event.ref_cnts.count(1)
            free = f" ({num_free} out of the free queue)" if num_free else ""
            parts = [figure(count(len(event.block_ids), "cached block")), free, dim(": ")]
            return "●", "hit", [who, " now holds ", *parts, *_listed(event.block_ids)]
        case ev.BlockReleased():
            return "−", "note", [who, " gave back ", *_released(event)]
        case ev.BlockCached():
            parts = [figure(count(len(event.block_ids), "full block")), " of ", who]
            parts += [" published for prefix hits", dim(": "), *_listed(event.block_ids)]
            for block_id, first_id in zip(event.block_ids, event.duplicate_of, strict=False):
                parts += [dim(f", {block_id} doubles "), block(first_id)] if first_id else []
            return "░", "cached", parts
        case ev.BlockEvicted():
            parts = [figure(count(len(event.block_ids), "cached block")), " evicted for ", who, dim(": ")]
            return "◆", "evicted", [*parts, *_listed(event.block_ids)]
        case ev.BlockUncached():
            parts = [figure(count(len(event.block_ids), "block")), " of ", who, " taken back from the prefix cache"]
            parts += [dim(f" ({event.reason}): "), *_listed(event.block_ids)]
            return "░", "cached", parts
        case ev.KVTransferStarted():
            way = "to be loaded" if event.direction == "load" else "to be sent"
            parts = [figure(count(len(event.block_ids), "block")), " of ", who, f" began {way}", dim(": ")]
            return "↷", "transfer", [*parts, *_listed(event.block_ids)]
        case ev.KVTransferFinished():
            way = "load" if event.direction == "load" else "send"
            failed: list[Part] = [", failed: ", *_listed(event.failed_block_ids)]
            return "↷", "transfer", [f"the {way} of ", who, " ended", *(failed if event.failed_block_ids else [])]


def _released(event: ev.BlockReleased) -> list[Part]:
    tail = "to its tail" if event.freed_to_head else "to the tail of the free queue"
    places = (
        ("to the head of the free queue", event.freed_to_head),
        (tail, event.freed_to_tail),
        ("still held by others", event.still_held),
    )
    total = sum(len(block_ids) for _, block_ids in places)
    parts: list[Part] = [figure(count(total, "block"))]
    for place, block_ids in places:
        if block_ids:
            parts += [dim(f"; {len(block_ids)} {place}: "), *_listed(block_ids)]
    return parts


def _of_tokens(event: ev.TokensScheduled | ev.TokensSampled | ev.DraftsProposed | ev.DraftsVerified) -> Said:
    match event:
        case ev.TokensScheduled():
            total = figure(count(sum(event.num_tokens), "token"))
            shares = _shares(event.request_ids, event.num_tokens)
            return "▓", "prefill", [total, f" scheduled for {count(len(event.request_ids), 'request')}", *shares]
        case ev.TokensSampled():
            counts = event.num_tokens if event.num_tokens is not None else (1,) * len(event.request_ids)
            total = figure(count(len(event.token_ids), "token"))
            return "━", "note", [total, " generated", *_shares(event.request_ids, counts)]
        case ev.DraftsProposed():
            number = figure(count(len(event.draft_token_ids), "draft"))
            return "≈", "drafts", [number, " proposed for ", request(event.request_id)]
        case ev.DraftsVerified():
            accepted = figure(f"{event.num_accepted} of {count(event.num_drafts, 'draft')}")
            back = f", {event.num_rolled_back} rolled back" if event.num_rolled_back else ""
            dropped = f", {event.num_discarded} dropped" if event.num_discarded else ""
            return "≈", "drafts", [accepted, " of ", request(event.request_id), " accepted", dim(back + dropped)]


def _shares(request_ids: tuple[str, ...], counts: tuple[int, ...]) -> list[Part]:
    items: list[list[Part]] = [
        [request(request_id, "dim"), dim(f" {number}")]
        for request_id, number in zip(request_ids[: _MAX_SHARES + 1], counts, strict=False)
    ]
    items += [[]] * (len(request_ids) - len(items))  # `dotted` counts them
    return [dim(": "), *dotted(items, _MAX_SHARES)] if request_ids else []
