"""Where a request's hash chain left the cached one, at each of its admissions, and why.

For each admission: what was hit, whose blocks these were, and the reason why not more: the recorded lookup against what
the cache held at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import takewhile

from kvscope import events as ev
from kvscope.analysis.token_view import request_text, request_token_ids
from kvscope.analysis.why.lookups import CacheHistory, Publication, Relative, follow_lookups
from kvscope.analysis.why.missed_records import (
    Admission,
    Difference,
    Duplicate,
    Lost,
    Match,
    MissedAnswer,
    MissReason,
)
from kvscope.engine.scheduling import rules
from kvscope.replay.timeline import Timeline

MAX_MATCHES = 16
_TOKENS_BEFORE, _TOKENS_AFTER = 3, 6
"""Tokens of text shown around a first difference."""
_NEAR = 256
"""Tokens behind a first difference among which what is alike again is looked for."""


def missed_answer(
    timeline: Timeline, request_id: str, last_step: int, admissions: Sequence[tuple[int, str]], refused_step: int | None
) -> MissedAnswer:
    """Returns the answer up to a step. `admissions` are its admissions as (step, "new" or "resumed"), in order.

    `refused_step`: its last lookup, for a request that was never admitted.
    """
    kinds: dict[int, str] = dict(admissions)
    if refused_step is not None and not kinds:
        kinds[refused_step] = "refused"
    block_size = timeline.config.block_size if timeline.config is not None else 1
    history = CacheHistory(request_id, timeline.token_ids(request_id, last_step), block_size)
    found: list[Admission] = []
    for step, event in follow_lookups(timeline, history, list(kinds), last_step):
        found.append(_admission(timeline, history, step, event, kinds[step]))
    seen = {admission.step for admission in found}
    found += [_without_lookup(history, step, kind) for step, kind in kinds.items() if step not in seen]
    found.sort(key=lambda admission: admission.step)
    admitted = [admission for admission in found if admission.kind != "refused"]
    return MissedAnswer(
        admissions=tuple(found),
        own_hit_tokens=sum(admission.own_hit_tokens for admission in admitted),
        others_hit_tokens=sum(admission.others_hit_tokens for admission in admitted),
        duplicates=tuple(
            Duplicate(step=step, block_index=index, block_id=block_id, duplicate_of=first_id)
            for step, index, block_id, first_id in history.duplicates
        ),
    )


def _admission(timeline: Timeline, history: CacheHistory, step: int, event: ev.PrefixLookedUp, kind: str) -> Admission:
    config = timeline.config
    assert config is not None
    size = config.block_size
    me = history.relatives[history.request_id]
    num_tokens, num_hit = me.num_known, len(event.block_ids)
    if not config.settings.get("enable_prefix_caching", True):
        return _without_lookup(history, step, kind)
    cap_blocks = rules.max_hit_blocks(num_tokens, size)
    others = [relative for relative in history.relatives.values() if relative is not me and relative.has_run]
    matches = _matches(others, me, num_tokens)
    best = next((match for match in matches if match.same_salt and match.same_adapter), None)
    shared = best.shared_tokens if best is not None else 0
    publications = [history.current.get(block_id) for block_id in event.block_ids]
    own = sum(p is not None and p.origin_id == me.request_id for p in publications)
    reason, lost = _reason(history, me, num_hit, cap_blocks, shared, size)
    foreign = _foreign(history, me, num_hit, size) if reason in ("other_salt", "other_adapter") else None
    at_cap = num_hit >= cap_blocks
    difference = None
    if best is not None and shared < num_tokens:
        difference = _difference(timeline, history, step, best.request_id, shared, num_tokens, size)
    return Admission(
        step=step,
        kind=kind,  # type: ignore[arg-type]
        num_tokens=num_tokens,
        hit_tokens=event.num_hit_tokens,
        hit_blocks=event.block_ids,
        publishers=tuple(p.origin_id if p is not None else "" for p in publications),
        own_hit_tokens=own * size,
        others_hit_tokens=event.num_hit_tokens - own * size,
        cap=cap_blocks * size,
        shared_tokens=shared,
        best_match=best.request_id if best is not None else None,
        matches=tuple(matches[:MAX_MATCHES]),
        reason=reason,
        chain_leaves_at_block=None if at_cap else num_hit,
        difference=difference,
        lost=lost,
        lost_blocks=_lost_blocks(history, me, num_hit, cap_blocks, size) if lost is not None else (),
        other_salt_id=foreign.request_id if foreign is not None else None,
        other_salt=foreign.cache_salt if foreign is not None else None,
        other_lora_name=foreign.lora_name if foreign is not None else None,
        hit_zero_and_correct=num_hit == 0
        and reason in ("nothing_shared", "shorter_than_a_block", "last_token_must_be_computed"),
        hits_hold_its_tokens=all(
            p is not None and p.index == index and _holds(history, p, me, size) for index, p in enumerate(publications)
        ),
    )


def _without_lookup(history: CacheHistory, step: int, kind: str) -> Admission:
    """An admission without a lookup: caching is off."""
    me = history.relatives[history.request_id]
    return Admission(
        step=step,
        kind=kind,  # type: ignore[arg-type]
        num_tokens=me.num_known,
        hit_tokens=0,
        hit_blocks=(),
        publishers=(),
        own_hit_tokens=0,
        others_hit_tokens=0,
        cap=0,
        shared_tokens=0,
        best_match=None,
        matches=(),
        reason="caching_off",
        chain_leaves_at_block=0,
        difference=None,
        lost=None,
        lost_blocks=(),
        other_salt_id=None,
        other_salt=None,
        other_lora_name=None,
        hit_zero_and_correct=True,
        hits_hold_its_tokens=True,
    )


def _matches(others: Sequence[Relative], me: Relative, num_tokens: int) -> list[Match]:
    found = [
        Match(
            request_id=relative.request_id,
            shared_tokens=min(relative.num_shared, num_tokens),
            same_salt=relative.cache_salt == me.cache_salt,
            cache_salt=relative.cache_salt,
            same_adapter=relative.lora_name == me.lora_name,
            lora_name=relative.lora_name,
        )
        for relative in others
        if relative.num_shared > 0
    ]
    return sorted(found, key=lambda match: -match.shared_tokens)  # a stable sort: of equals the earliest stays first


def _holds(history: CacheHistory, publication: Publication, me: Relative, size: int) -> bool:
    origin = history.relatives[publication.origin_id]
    return origin.num_shared >= (publication.index + 1) * size and _is_kin(origin, me)


def _is_kin(relative: Relative, me: Relative) -> bool:
    """Salt and adapter are the same: with the same tokens the hashes are."""
    return (relative.cache_salt, relative.lora_name) == (me.cache_salt, me.lora_name)


def _reason(
    history: CacheHistory, me: Relative, num_hit: int, cap_blocks: int, shared: int, size: int
) -> tuple[MissReason, Lost | None]:
    """Returns why the block behind the hit was not hit."""
    if num_hit < cap_blocks:
        sharing = history.sharing((num_hit + 1) * size)
        kin = [relative for relative in sharing if _is_kin(relative, me)]
        lost = history.last_lost(kin, num_hit)
        if lost is not None and lost.lost_how is not None:
            return lost.lost_how, _lost(lost)
        foreign = _foreign(history, me, num_hit, size)
        if foreign is not None:
            return "other_salt" if foreign.lora_name == me.lora_name else "other_adapter", None
        computing = [relative for relative in kin if relative is not me]
        if any(not relative.has_ended for relative in computing):
            return "not_computed_yet", None
        if computing:
            return "never_computed", None
    # A preempted request's own text is always shared with itself: nothing of it was published beyond the hit.
    whole = shared // size * size
    hit_tokens = num_hit * size
    if shared == 0 and num_hit == 0:
        return "nothing_shared", None
    if shared < size and num_hit == 0:
        return "shorter_than_a_block", None
    if hit_tokens < whole:
        return "last_token_must_be_computed", None
    return ("all_shared_hit" if shared <= hit_tokens else "rest_shorter_than_a_block"), None


def _lost_blocks(history: CacheHistory, me: Relative, num_hit: int, cap_blocks: int, size: int) -> tuple[Lost, ...]:
    """Returns the blocks behind the hit that had been cached and were lost, up to the first that never was."""
    found: list[Lost] = []
    for index in range(num_hit, cap_blocks):
        sharing = [relative for relative in history.sharing((index + 1) * size) if _is_kin(relative, me)]
        if history.published(sharing, index) is not None:
            continue
        lost = history.last_lost(sharing, index)
        if lost is None:
            break
        found.append(_lost(lost))
    return tuple(found)


def _foreign(history: CacheHistory, me: Relative, num_hit: int, size: int) -> Relative | None:
    """Returns who has the block behind the hit in the cache, under another salt or adapter."""
    sharing = [relative for relative in history.sharing((num_hit + 1) * size) if not _is_kin(relative, me)]
    found = history.published(sharing, num_hit)
    return history.relatives[found.origin_id] if found is not None else None


def _lost(publication: Publication) -> Lost:
    assert publication.lost_step is not None
    return Lost(
        block_index=publication.index,
        block_id=publication.block_id,
        computed_by=publication.origin_id,
        published_step=publication.published_step,
        lost_step=publication.lost_step,
        lost_for=publication.lost_for,
    )


def _difference(
    timeline: Timeline, history: CacheHistory, step: int, other_id: str, position: int, num_tokens: int, size: int
) -> Difference:
    """Tells the first token that differs, and how much is alike again behind it."""
    start, stop = max(position - _TOKENS_BEFORE, 0), position + _TOKENS_AFTER
    num_known = len(timeline.token_ids(other_id, step - 1))
    other = request_token_ids(timeline, other_id, step, position, min(position + 1, num_known))
    mine = history.token_ids[position : position + 1]
    others = request_token_ids(timeline, other_id, step, position, num_known)
    alike = _alike(history.token_ids[position:num_tokens], others)
    return Difference(
        other_id=other_id,
        token_position=position,
        block_index=position // size,
        position_in_block=position % size,
        token_id=mine[0] if mine else None,
        other_token_id=other[0] if other else None,
        text=request_text(timeline, history.request_id, step, start, stop),
        other_text=request_text(timeline, other_id, step, start, min(stop, num_known)),
        alike_behind=alike,
        alike_blocks_behind=alike // size,
    )


def _alike(mine: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the longest run of tokens that begins near the beginning of both, wherever in each."""
    near = SequenceMatcher(None, mine[:_NEAR], other[:_NEAR], autojunk=False).find_longest_match()
    behind = zip(mine[near.a + near.size :], other[near.b + near.size :], strict=False)
    return near.size + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], behind))
