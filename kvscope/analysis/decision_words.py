"""Two runs side by side in words: what each decided in a step, from what, and their counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.analysis.comparison import Comparison
from kvscope.analysis.decisions import Decision
from kvscope.analysis.divergence import StandingBefore
from kvscope.analysis.text import visible

MAX_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPair:
    """A count of both runs."""

    name: str
    a: int
    b: int


def decision_text(
    decision: Decision, fields: tuple[str, ...] = (), other: Decision | None = None, *, max_names: int = MAX_NAMES
) -> str:
    """Returns a decision in words; of more requests than `max_names` those that got something else in the other one."""
    parts = [f"{decision.num_scheduled_tokens} tokens"]
    if decision.scheduled:
        shared = set(other.scheduled) if other is not None and len(decision.scheduled) > max_names else set()
        own = [f"{visible(key)} {tokens}" for key, tokens in decision.scheduled if (key, tokens) not in shared]
        num_same = len(decision.scheduled) - len(own)
        same = [f"{num_same} others as in the other run"] if num_same else []
        parts[0] += ": " + "; ".join([*([some(own)] if own else []), *same])
    for word, names in (
        ("preempted", decision.preempted),
        ("admitted", decision.admitted),
        ("resumed", decision.resumed),
    ):
        if names:
            parts.append(f"{word} {some([visible(key) for key in names])}")
    hits = [f"{visible(key)} {tokens}" for key, tokens in decision.hits if tokens]
    if hits:
        parts.append(f"hit tokens {some(hits)}")
    if "drafts" in fields:
        parts.append("drafts " + (some([f"{visible(key)} {count}" for key, count in decision.drafts]) or "none"))
    parts.append(f"admission ended by {decision.stop}" if decision.stop else "not scheduled")
    return "; ".join(parts)


def standing_text(standing: StandingBefore, *, has_names: bool = True) -> str:
    """Returns the queues and free blocks that a step was decided from; the queues with or without their names."""

    def names(ids: tuple[str, ...]) -> str:
        if not has_names:
            return str(len(ids) or "none")
        return f"{len(ids)} ({some([visible(name) for name in ids])})" if ids else "none"

    parts = [
        f"running {names(standing.running)}",
        f"waiting {names(standing.waiting)}",
        f"{standing.num_free_blocks} free blocks, {standing.num_cached_blocks} of them cached",
    ]
    if standing.arrived:
        parts.append(f"arriving {names(standing.arrived)}")
    if standing.aborted:
        parts.append(f"aborted {names(standing.aborted)}")
    return "; ".join(parts)


def some(names: Sequence[str], limit: int = MAX_NAMES) -> str:
    """Returns the first names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def count_pairs(comparison: Comparison) -> list[CountPair]:
    """Returns the counts of both runs."""
    base, changed = comparison.base, comparison.changed
    pairs = [
        CountPair(name="steps", a=base.num_steps, b=changed.num_steps),
        CountPair(name="empty steps while something waits", a=base.num_empty_steps, b=changed.num_empty_steps),
        CountPair(name="preemptions", a=len(base.preemptions), b=len(changed.preemptions)),
        CountPair(name="tokens computed twice", a=base.num_recomputed_tokens, b=changed.num_recomputed_tokens),
        CountPair(name="prefix hit tokens", a=base.num_hit_tokens, b=changed.num_hit_tokens),
    ]
    if base.min_free_blocks is not None and changed.min_free_blocks is not None:
        pairs.append(CountPair(name="evicted blocks", a=base.num_evicted_blocks, b=changed.num_evicted_blocks))
        pairs.append(CountPair(name="fewest free blocks", a=base.min_free_blocks, b=changed.min_free_blocks))
    pairs += [
        CountPair(name=f"steps ended by {reason}", a=base.stops[reason], b=changed.stops[reason])
        for reason in sorted(set(base.stops) | set(changed.stops))
    ]
    return pairs
