"""The words on prompts that nearly share a prefix: what differs, what is alike behind it, what would have hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvscope.analysis.finding import Finding, finding
from kvscope.analysis.near_prefixes import NearMiss, NearPrefix
from kvscope.analysis.spans import Part, Sentence, count, dim, figure, listed, request, say, strong
from kvscope.analysis.text import truncate, visible
from kvscope.analysis.token_view import request_text
from kvscope.analysis.why.words import span_of
from kvscope.replay.timeline import Timeline

_MAX_NAMES = 4
_MAX_TOLD = 8
"""Findings that are told one by one, those that lost most; the others are one together."""
_TOKENS_BEFORE, _MAX_TOKENS_SHOWN = 2, 8
"""Of the text around a first difference."""
_MAX_TEXT_CELLS = 24


def near_prefix_findings(timeline: Timeline, found: Sequence[NearPrefix]) -> Iterator[Finding]:
    """The prompts that each nearly share a prefix with one that ran before them."""
    if len(found) > _MAX_TOLD + 1:
        yield from near_prefix_findings(timeline, found[:_MAX_TOLD])
        yield _others(found[_MAX_TOLD:])
        return
    for near in found:
        first, misses = near.misses[0], near.misses
        request_ids = tuple(miss.request_id for miss in misses)
        yield finding(
            "nearly_shared_prefix",
            sorted({miss.step for miss in misses}),
            (*request_ids, near.other_id),
            {
                "other": near.other_id,
                "requests": list(request_ids),
                "differ_by": "cache_salt" if first.is_salt else "tokens",
                "first_difference": [miss.first_difference for miss in misses],
                "differing_tokens": [miss.num_differing for miss in misses],
                "others_differing_tokens": [miss.num_others_differing for miss in misses],
                "alike_tokens_behind": [miss.num_alike for miss in misses],
                "hit_tokens": sum(miss.num_hit_tokens for miss in misses),
                "more_hit_tokens": near.num_more_tokens,
            },
            Sentence(
                "○",
                "evicted",
                say(
                    *listed([request(request_id) for request_id in request_ids], _MAX_NAMES),
                    strong(" nearly shares" if len(misses) == 1 else " nearly share"),
                    " a prefix with ",
                    request(near.other_id),
                    *(_other_salt(timeline, near) if first.is_salt else _other_tokens(timeline, near)),
                    dim(" (with nothing evicted)"),
                ),
            ),
        )


def _others(found: Sequence[NearPrefix]) -> Finding:
    """Counts those that are not told one by one."""
    misses = sorted((miss for near in found for miss in near.misses), key=lambda miss: miss.step)
    more = sum(miss.num_more_tokens for miss in misses)
    request_ids = tuple(miss.request_id for miss in misses)
    return finding(
        "nearly_shared_prefix",
        sorted({miss.step for miss in misses}),
        request_ids,
        {"requests": list(request_ids), "others": [miss.other_id for miss in misses], "more_hit_tokens": more},
        Sentence(
            "○",
            "evicted",
            say(
                figure(count(len(misses), "other request")),
                strong(" nearly share"),
                " a prefix with one before them; ",
                figure(count(more, "more token")),
                " would have hit",
                dim(" (with nothing evicted)"),
            ),
        ),
    )


def _other_tokens(timeline: Timeline, near: NearPrefix) -> list[Part]:
    """Says what differs in the first of them, how much is alike behind it, and what would help."""
    first = near.misses[0]
    alike = [miss.num_alike for miss in near.misses]
    who: Part = "it" if len(near.misses) == 1 else request(first.request_id)
    return [
        f": at token {first.first_difference} ",
        who,
        f" {_difference(timeline, near)}, and behind that ",
        figure(f"{span_of(min(alike), max(alike))} tokens"),
        " on end are alike; ",
        figure(count(near.num_more_tokens, "more token")),
        " would have hit: what differs would have to stand behind them",
    ]


def _difference(timeline: Timeline, near: NearPrefix) -> str:
    """Returns what the first of them has there instead: text with a little of what stands before it."""
    first = near.misses[0]
    num_mine, num_others = first.num_differing, first.num_others_differing
    mine = _text_around(timeline, first, first.request_id, num_mine)
    others = _text_around(timeline, first, near.other_id, num_others)
    if not num_mine:
        return f"lacks {count(num_others, 'token')} (“{others}”)"
    if not num_others:
        return f"has {count(num_mine, 'token')} more (“{mine}”)"
    return f"has “{mine}” for “{others}”"


def _text_around(timeline: Timeline, first: NearMiss, request_id: str, num_differing: int) -> str:
    begin = max(first.first_difference - _TOKENS_BEFORE, 0)
    end = first.first_difference + min(num_differing, _MAX_TOKENS_SHOWN)
    text = visible(request_text(timeline, request_id, first.step, begin, end))
    return truncate(text + "…" * (num_differing > _MAX_TOKENS_SHOWN), _MAX_TEXT_CELLS)


def _other_salt(timeline: Timeline, near: NearPrefix) -> list[Part]:
    """Says which salts keep them apart; that may be meant."""
    first = near.misses[0]
    rows = timeline.request(first.request_id), timeline.request(first.other_id)
    mine, others = ("none" if row is None or row.cache_salt is None else f"“{visible(row.cache_salt)}”" for row in rows)
    return [
        ": the same ",
        figure(count(first.num_alike, "token")),
        f" under another cache_salt ({mine} for {others}); ",
        figure(count(near.num_more_tokens, "more token")),
        " would have hit under the same one, if they are not to be kept apart",
    ]
