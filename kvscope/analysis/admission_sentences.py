"""Sentences on admissions: who left the waiting queue, after how long, with which hit of whose blocks, or why none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvscope import events as ev
from kvscope.analysis.memory import remembered
from kvscope.analysis.spans import (
    Part,
    Sentence,
    Tone,
    count,
    dim,
    figure,
    request,
    say,
    strong,
)
from kvscope.analysis.step_facts import setting
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import EngineState

_MAX_NAMES = 3


def admissions(timeline: Timeline, moment: Moment) -> Iterator[Sentence]:
    """● → Who was admitted or resumed, after how long, with which hit; and what a preemption really cost.

    Only here it is known: blocks that the victim gave back may still be cached.
    """
    hits: dict[str, ev.PrefixCacheHit] = {}
    touched: dict[str, ev.BlockTouched] = {}
    for event in moment.events:
        match event:
            case ev.BlockTouched():
                touched[event.request_id] = event
            case ev.PrefixCacheHit():
                hits[event.request_id] = event
            case ev.RequestAdmitted() | ev.RequestResumed():
                yield _admitted(timeline, moment, event, hits.get(event.request_id), touched.get(event.request_id))
            case _:
                pass


def _admitted(
    timeline: Timeline,
    moment: Moment,
    event: ev.RequestAdmitted | ev.RequestResumed,
    hit: ev.PrefixCacheHit | None,
    touched: ev.BlockTouched | None,
) -> Sentence:
    state = moment.state
    admitted = state.requests[event.request_id]
    num_waited = moment.step - admitted.waiting_since_step
    is_resumed = isinstance(event, ev.RequestResumed)
    verb = " resumed" if is_resumed else " admitted"
    after = f" after {count(num_waited, 'step')}: " if num_waited else " at once: "
    parts: list[Part] = [request(event.request_id), verb, after]
    lost = _last_lost_tokens(timeline, moment, event.request_id) if is_resumed else None
    tone: Tone = "admitted"
    if hit is None:
        parts.append(f"no hit ({no_hit_reason(state, event.num_tokens)})")
        if lost is not None:
            parts.append(f", all its {count(lost, 'lost token')} to compute again")
    else:
        tone = "hit"
        if lost is not None and event.num_hit_tokens <= lost:
            parts.append(strong(f"{event.num_hit_tokens} of its {count(lost, 'lost token')} hit"))
        else:
            parts.append(strong(f"{count(event.num_hit_tokens, 'token')} hit"))
        parts += [" in ", *hit_owners(state, event.request_id, hit.block_ids)]
        num_from_free = touched.ref_cnts.count(1) if touched is not None else 0
        if num_from_free:
            parts.append(dim(f" ({num_from_free} from the free queue)"))
        if lost is not None and event.num_hit_tokens < lost:
            parts.append(f", {lost - event.num_hit_tokens} to compute again")
    parts += _scheduled(moment, timeline, event)
    return Sentence("→" if hit is None else "●", tone, say(*parts))


def _scheduled(moment: Moment, timeline: Timeline, event: ev.RequestAdmitted | ev.RequestResumed) -> list[Part]:
    share = remembered(timeline).facts(moment).shares.get(event.request_id)
    num_drafts = share.num_draft_tokens if share is not None else 0
    num_own = event.num_scheduled_tokens - num_drafts
    num_left = event.num_tokens - event.num_hit_tokens - num_own
    parts: list[Part] = [", ", figure(num_own), " scheduled"]
    if num_drafts:
        parts.append(f" + {count(num_drafts, 'placeholder draft')}")
    if num_left:
        parts.append(f", {num_left} left")
    return [*parts, *capped_by_threshold(moment.state, num_own, num_left)]


def _last_lost_tokens(timeline: Timeline, moment: Moment, request_id: str) -> int | None:
    """Returns the tokens that a request lost when it was last preempted."""
    resumed = moment.state.requests[request_id]
    if resumed.num_preemptions == 1:
        return resumed.num_lost_tokens
    lost: int | None = None
    for _, event in timeline.request_events(request_id, resumed.waiting_since_step, resumed.waiting_since_step):
        if isinstance(event, ev.RequestPreempted) and event.request_id == request_id:
            lost = event.num_lost_tokens
    return lost


def capped_by_threshold(state: EngineState, num_tokens: int, num_left: int) -> list[Part]:
    """Returns the words for a share that the long-prefill threshold cut."""
    threshold = setting(state, "long_prefill_token_threshold")
    if not threshold or num_tokens != threshold or num_left <= 0:
        return []
    return [dim(f"; capped at {threshold} (long_prefill_token_threshold)")]


def no_hit_reason(state: EngineState, num_tokens: int) -> str:
    """Returns why a lookup could find nothing, or that it found nothing."""
    if setting(state, "enable_prefix_caching") is False:
        return "prefix caching is off"
    if state.config is not None and num_tokens < state.config.block_size:
        return f"{count(num_tokens, 'token')}, less than a block of {state.config.block_size}"
    if state.config is not None and num_tokens == state.config.block_size:
        return f"{count(num_tokens, 'token')} are one block, and the last token is always computed"
    return "no block of it is cached"


def hit_owners(state: EngineState, request_id: str, block_ids: tuple[int, ...]) -> list[Part]:
    """Returns whose blocks were hit: `6 blocks of req-2`, `24 blocks of its own`, `4 blocks of a and 2 of b`."""
    owners = Counter(state.cached_from[block_id][0] for block_id in block_ids if block_id in state.cached_from)
    num_unknown = len(block_ids) - owners.total()
    groups: list[tuple[int, Part]] = [
        (number, "its own" if owner == request_id else request(owner)) for owner, number in owners.most_common()
    ]
    parts: list[Part] = []
    for index, (number, owner) in enumerate(groups[:_MAX_NAMES]):
        if index:
            parts.append(" and " if index == len(groups) - 1 else ", ")
        parts += [count(number, "block") if index == 0 else str(number), " of ", owner]
    if len(groups) > _MAX_NAMES:
        rest = sum(number for number, _ in groups[_MAX_NAMES:])
        parts.append(f" and {rest} of {count(len(groups) - _MAX_NAMES, 'other')}")
    if num_unknown:
        parts.append(f"{', ' if parts else ''}{count(num_unknown, 'block')} not cached any more")
    return parts
