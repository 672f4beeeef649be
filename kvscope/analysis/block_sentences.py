"""Sentences on blocks: evictions, what ended requests gave back, publications, allocations, transfers.

Every function returns the sentences of one kind, in the order in which things happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kvscope import events as ev
from kvscope.analysis.spans import (
    Part,
    Sentence,
    block_list,
    count,
    dim,
    dotted,
    figure,
    listed,
    request,
    say,
    strong,
)
from kvscope.analysis.text import visible
from kvscope.replay.timeline import Moment

_MAX_NAMES = 3
_MAX_BLOCKS = 12
_MAX_ITEMS = 6
_MAX_BLOCKS_OF_ITEM = 4
_MAX_SINGLE = 3
"""Up to so many evictions or prefills have a sentence each; more are put together."""


def evictions(moment: Moment) -> Iterator[Sentence]:
    """◆ Which cached blocks were lost, whose they were, who took them."""
    events = [event for event in moment.events if isinstance(event, ev.BlockEvicted)]
    by_request: dict[str, list[int]] = {}
    for event in events:
        by_request.setdefault(event.request_id, []).extend(event.block_ids)
    if len(by_request) <= _MAX_SINGLE:
        for request_id, block_ids in by_request.items():
            yield _evicted(moment, block_ids, request(request_id))
    else:
        every = [block_id for block_ids in by_request.values() for block_id in block_ids]
        yield _evicted(moment, every, strong(count(len(by_request), "request")))


def _evicted(moment: Moment, block_ids: list[int], beneficiary: Part) -> Sentence:
    from_ids = moment.state.evicted_from
    owners = Counter(from_ids[block_id][0] for block_id in block_ids if block_id in from_ids)
    parts: list[Part] = [figure(count(len(block_ids), "cached block"))]
    if owners:
        parts += [" of ", *listed([request(owner) for owner, _ in owners.most_common()], _MAX_NAMES)]
    parts += [" evicted for ", beneficiary, dim(": "), *block_list(block_ids, _MAX_BLOCKS)]
    return Sentence("◆", "evicted", say(*parts))


def ends(moment: Moment) -> Iterator[Sentence]:
    """✓ × Who finished or was aborted, and what became of its blocks."""
    for index, event in enumerate(moment.events):
        match event:
            case ev.RequestFinished():
                why = event.reason + (f": {visible(event.stop)}" if event.stop else "")
                parts: list[Part] = [
                    request(event.request_id),
                    f" finished ({why}), ",
                    figure(count(event.num_output_tokens, "token")),
                    *_given_back(moment.events, index, event.request_id),
                ]
                yield Sentence("✓", "finished", say(*parts))
            case ev.RequestAborted():
                yield _aborted(moment.events, index, event)
            case _:
                pass


def _aborted(events: Sequence[ev.Event], index: int, event: ev.RequestAborted) -> Sentence:
    doing = {"WAITING": "while it waited", "RUNNING": "while it ran", "PREEMPTED": "while it waited to resume"}
    parts: list[Part] = [request(event.request_id), f" aborted {doing[event.status]}"]
    if event.during_execution:
        parts.append(", in the middle of the step (what the model made of it is dropped)")
    parts += _given_back(events, index, event.request_id)
    return Sentence("×", "aborted", say(*parts))


def _given_back(events: Sequence[ev.Event], index: int, request_id: str) -> list[Part]:
    """Returns what became of the blocks of a request that ended: the release follows its end at once."""
    released = events[index + 1] if index + 1 < len(events) else None
    if not isinstance(released, ev.BlockReleased) or released.request_id != request_id:
        return []
    num_freed = len(released.freed_to_head) + len(released.freed_to_tail)
    num_held = len(released.still_held)
    if num_freed + num_held == 0:
        return []
    parts: list[Part] = [": ", f"{count(num_freed, 'block')} given back"]
    if num_held:
        parts.append(f", {num_held} {'stays' if num_held == 1 else 'stay'} with others")
    num_hittable = len(released.freed_to_tail)
    if num_hittable:
        which = ("still" if num_freed == 1 else "all still") if num_hittable == num_freed else f"{num_hittable} still"
        parts.append(dim(f"; {which} hittable"))
    return parts


def unpublished(moment: Moment) -> Iterator[Sentence]:
    """░ Published blocks that were taken back because their tokens will not be computed."""
    why = {
        "preempted": "preempted in the step that was to compute",
        "step_failed": "the step failed before it had computed",
        "load_failed": "nothing could be loaded into",
    }
    for event in moment.events:
        if isinstance(event, ev.BlockUncached):
            it = "it" if len(event.block_ids) == 1 else "them"
            yield Sentence(
                "░",
                "cached",
                say(
                    figure(count(len(event.block_ids), "block")),
                    " of ",
                    request(event.request_id),
                    f" taken back from the prefix cache, {why[event.reason]} {it}",
                    dim(": "),
                    *block_list(event.block_ids, _MAX_BLOCKS),
                ),
            )


def allocations(moment: Moment) -> Iterator[Sentence]:
    """+ Which blocks were taken from the free queue, by whom."""
    by_request: dict[str, list[int]] = {}
    freed_by_preemption: set[int] = set()
    victims: set[str] = set()
    for event in moment.events:
        match event:
            case ev.BlockAllocated():
                by_request.setdefault(event.request_id, []).extend(event.block_ids)
            case ev.RequestPreempted():
                victims.add(event.request_id)
            case ev.BlockReleased() if event.request_id in victims:
                freed_by_preemption.update(event.freed_to_head, event.freed_to_tail)
            case _:
                pass
    every = [block_id for block_ids in by_request.values() for block_id in block_ids]
    if not every:
        return
    items: list[list[Part]] = [
        [request(request_id, "dim"), dim(" "), *block_list(block_ids, _MAX_BLOCKS_OF_ITEM)]
        for request_id, block_ids in by_request.items()
    ]
    parts: list[Part] = [
        strong(count(len(every), "block")),
        " taken from the head of the free queue: ",
        *dotted(items, _MAX_ITEMS),
    ]
    num_just_freed = sum(block_id in freed_by_preemption for block_id in every)
    if num_just_freed:
        of_them = "" if num_just_freed == len(every) else f"{num_just_freed} of them "
        parts.append(dim(f", {of_them}just freed by the preemption{'s' if len(victims) > 1 else ''}"))
    yield Sentence("+", "new", say(*parts))


def publications(moment: Moment) -> Iterator[Sentence]:
    """░ Which full blocks can be hit from now on."""
    published: dict[str, dict[int, bool]] = {}
    for event in moment.events:
        if isinstance(event, ev.BlockCached):
            blocks = published.setdefault(event.request_id, {})
            for index, block_id in enumerate(event.block_ids):
                blocks[block_id] = bool(event.duplicate_of and event.duplicate_of[index])
        elif isinstance(event, ev.BlockUncached):
            for block_id in event.block_ids:
                published.get(event.request_id, {}).pop(block_id, None)
    by_request = {request_id: list(blocks) for request_id, blocks in published.items() if blocks}
    num_duplicates = sum(sum(blocks.values()) for blocks in published.values())
    total = sum(map(len, by_request.values()))
    if not total:
        return
    items: list[list[Part]] = [
        [request(request_id, "dim"), dim(" "), *block_list(block_ids, _MAX_BLOCKS_OF_ITEM)]
        for request_id, block_ids in by_request.items()
    ]
    parts: list[Part] = [strong(count(total, "full block")), " published for prefix hits"]
    if num_duplicates:
        doubles = "doubles one" if num_duplicates == 1 else "double ones"
        which = "it" if total == 1 else f"{num_duplicates} of them"
        parts.append(f" ({which} {doubles} published before)")
    yield Sentence("░", "cached", say(*parts, dim(": "), *dotted(items, _MAX_ITEMS)))


def transfers(moment: Moment) -> Iterator[Sentence]:
    """↷ Which blocks are on their way from or to another engine."""
    for event in moment.events:
        match event:
            case ev.KVTransferStarted():
                way = "be loaded from" if event.direction == "load" else "be sent to"
                yield Sentence(
                    "↷",
                    "transfer",
                    say(
                        figure(count(len(event.block_ids), "block")),
                        " of ",
                        request(event.request_id),
                        f" ({count(event.num_tokens, 'token')}) began to {way} another engine",
                    ),
                )
            case ev.KVTransferFinished():
                done = "loaded" if event.direction == "load" else "sent"
                parts: list[Part] = ["KV of ", request(event.request_id), f" is {done}"]
                if event.failed_block_ids:
                    parts += [
                        ", but ",
                        figure(count(len(event.failed_block_ids), "block")),
                        " failed: ",
                        *block_list(event.failed_block_ids, _MAX_BLOCKS),
                    ]
                yield Sentence("↷", "transfer", say(*parts))
            case _:
                pass
