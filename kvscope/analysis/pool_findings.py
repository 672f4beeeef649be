"""What is wrong with the blocks of a run: books that do not balance, prefix hits lost to eviction."""

from __future__ import annotations

from collections.abc import Iterator

from kvscope.analysis.block_books import DoubleFree, Leak
from kvscope.analysis.finding import Finding, finding
from kvscope.analysis.spans import Sentence, count, dim, figure, listed, request, say, strong
from kvscope.analysis.stack_distance import LostHits
from kvscope.analysis.step_runs import StepRuns

_MAX_NAMES = 4


def unbalanced_books(runs: StepRuns) -> Iterator[Finding]:
    """Blocks that were given back twice or that nobody has, and events that contradict the state before them."""
    for double in runs.books.double_frees:
        yield _given_back_twice(double)
    if runs.contradiction is not None:
        step, error = runs.contradiction
        yield finding(
            "books_do_not_balance",
            [step],
            (),
            {"contradiction": error.message},
            Sentence("✖", "failed", say(strong("The books do not balance"), f": {error.message}")),
        )
    if runs.books.first_leak is not None:
        yield _unaccounted_for(runs.books.first_leak)


def _given_back_twice(double: DoubleFree) -> Finding:
    first, second = double.first, double.second
    return finding(
        "books_do_not_balance",
        [first.step, second.step],
        (first.request_id, second.request_id),
        {
            "block_id": double.block_id,
            "first_free": {"step": first.step, "request_id": first.request_id},
            "second_free": {"step": second.step, "request_id": second.request_id},
        },
        Sentence(
            "✖",
            "failed",
            say(
                strong(f"Block {double.block_id} was given back twice"),
                f": at step {first.step} by ",
                request(first.request_id),
                f" and at step {second.step} by ",
                request(second.request_id),
                ", with nobody holding it in between",
            ),
        ),
    )


def _unaccounted_for(leak: Leak) -> Finding:
    """The first step after which free blocks and held blocks are not the pool, or an ended request still holds some."""
    owners = [request(request_id) for request_id in leak.owner_ids]
    who = ["; last owned by ", *listed(owners, _MAX_NAMES)] if owners else []
    ended = f", which ended at step {min(leak.ended_steps.values())} and gave nothing back" if leak.ended_steps else ""
    return finding(
        "books_do_not_balance",
        [leak.step],
        leak.owner_ids,
        {
            "num_unaccounted_blocks": len(leak.block_ids),
            "ended_steps": leak.ended_steps,
            "missing_event": "BlockReleased" if leak.ended_steps else None,
            "block_ids": list(leak.block_ids),
            "num_unaccounted_tokens": len(leak.block_ids) * leak.block_size,
            "num_free_blocks": leak.num_free_blocks,
            "num_held_blocks": leak.num_held_blocks,
            "pool": leak.pool,
        },
        Sentence(
            "✖",
            "failed",
            say(
                strong("The books do not balance"),
                f" from step {leak.step} on: {leak.num_free_blocks} free and {leak.num_held_blocks} held blocks "
                f"are not the pool of {leak.pool}; ",
                figure(count(len(leak.block_ids), "block")),
                " unaccounted for",
                *who,
                ended,
            ),
        ),
    )


def lost_hit_findings(lost: LostHits) -> Iterator[Finding]:
    """One finding for the whole run, or none."""
    if not lost.misses:
        return
    steps = sorted({miss.step for miss in lost.misses})
    owners = tuple(dict.fromkeys(miss.request_id for miss in lost.misses))
    yield finding(
        "hits_lost_to_eviction",
        steps,
        owners,
        {
            "lost_tokens": lost.num_lost_tokens,
            "hit_tokens": lost.num_hit_tokens,
            "queried_tokens": lost.num_queried_tokens,
            "hit_rate_pct": lost.hit_rate_pct,
            "hit_rate_without_eviction_pct": lost.possible_hit_rate_pct,
            "more_blocks_to_keep_all": lost.more_blocks_for(1.0),
            "more_blocks_to_keep_half": lost.more_blocks_for(0.5),
            "kept_tokens_by_more_blocks": [list(row) for row in lost.curve()],
        },
        Sentence(
            "◆",
            "evicted",
            say(
                figure(count(lost.num_lost_tokens, "hit token")),
                strong(" lost to eviction"),
                f" (hit rate {lost.hit_rate_pct:g} %, {lost.possible_hit_rate_pct:g} % with nothing evicted); about ",
                figure(count(lost.more_blocks_for(1.0), "more block")),
                f" would have kept all, {lost.more_blocks_for(0.5)} half of them",
                dim(" (by stack distance)"),
            ),
        ),
    )
