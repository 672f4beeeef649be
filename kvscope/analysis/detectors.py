"""What is wrong in a run, found from recorded facts: nine patterns that people report, each with its figures.

Pure over a timeline: one pass over the steps for what the queues did, one over the blocks for the prefix cache. Nothing
here guesses: each finding names the steps and figures that it follows from. Thresholds are the constants below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kvscope.analysis.spans import Sentence, count, dim, figure, listed, request, say, strong
from kvscope.analysis.stack_distance import LostHits, lost_hits
from kvscope.analysis.step_runs import StepRuns, step_runs
from kvscope.replay.timeline import Timeline

FindingKind = Literal[
    "books_do_not_balance",
    "never_fits",
    "preemption_cycle",
    "priority_inversion",
    "head_of_line_blocking",
    "starvation",
    "empty_steps_while_waiting",
    "long_prefill_among_decoders",
    "hits_lost_to_eviction",
]

MIN_CYCLES = 1
"""Resumptions that ended in another preemption."""
MIN_OVERTAKEN = 2
"""Requests that arrived later and were admitted first, to speak of starvation in the queue."""
MIN_SKIPPED_STEPS = 3
"""Steps on end without a token, to speak of starvation of a running request."""
MIN_PREFILL_SHARE = 0.5
"""Share of a step's tokens that one prompt takes from decoders beside it."""
MIN_PREFILL_STEPS = 2
_MAX_NAMES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One pattern, in one stretch of steps."""

    kind: FindingKind
    first_step: int
    last_step: int
    num_steps: int
    """Steps in which it holds; between the first and the last there may be others."""
    request_ids: tuple[str, ...]
    """Whom it is about, then whom it hurts."""
    figures: dict[str, Any]
    sentence: Sentence


def find_all(timeline: Timeline) -> list[Finding]:
    """Returns all findings of a recording, those of one kind together, the gravest kind first. Moves the timeline."""
    runs = step_runs(timeline)
    lost = lost_hits(timeline)
    return [
        *_books(timeline, runs),
        *_never_fits(runs),
        *_cycles(runs),
        *_inversions(runs),
        *_head_of_line(runs),
        *_starvation(runs),
        *_empty_steps(runs),
        *_long_prefills(runs),
        *_lost_hits(lost),
    ]


def _books(timeline: Timeline, runs: StepRuns) -> Iterator[Finding]:
    """The first step after which free blocks and held blocks are not the pool, or an ended request still holds some."""
    for double in runs.double_frees:
        first, second = double.first, double.second
        yield _finding(
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
    if runs.contradiction is not None:
        step, error = runs.contradiction
        yield _finding(
            "books_do_not_balance",
            [step],
            (),
            {"contradiction": error.message},
            Sentence("✖", "failed", say(strong("The books do not balance"), f": {error.message}")),
        )
    if runs.first_leak is None:
        return
    leak = runs.first_leak
    owners = [request(request_id) for request_id in leak.owner_ids]
    who = ["; last owned by ", *listed(owners, _MAX_NAMES)] if owners else []
    yield _finding(
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
                f", which ended at step {min(leak.ended_steps.values())} and gave nothing back"
                if leak.ended_steps
                else "",
            ),
        ),
    )


def _never_fits(runs: StepRuns) -> Iterator[Finding]:
    for request_id, waits in runs.never_fits.items():
        need, pool = waits.need, waits.have
        unit = "blocks" if waits.unit == "blocks" else "tokens"
        limit = f"the pool has {pool}" if unit == "blocks" else f"a step takes {pool} and prompts may not be cut"
        yield _finding(
            "never_fits",
            waits.steps,
            (request_id, *waits.behind),
            {"need": need, "have": pool, "unit": waits.unit, "behind": list(waits.behind)},
            Sentence(
                "✗",
                "refused",
                say(
                    request(request_id),
                    strong(" can never be admitted"),
                    ": it needs ",
                    figure(f"{need} {unit}"),
                    f", {limit}; {count(len(waits.behind), 'request')} behind it",
                ),
            ),
        )


def _cycles(runs: StepRuns) -> Iterator[Finding]:
    for row in runs.overview.requests:
        if row.resume_preempt_cycles < MIN_CYCLES:
            continue
        yield _finding(
            "preemption_cycle",
            list(row.preemptions),
            (row.request_id,),
            {
                "preemptions": list(row.preemptions),
                "resumes": list(row.resumes),
                "cycles": row.resume_preempt_cycles,
                "recomputed_tokens": row.recomputed_tokens,
            },
            Sentence(
                "▲",
                "preempted",
                say(
                    request(row.request_id),
                    strong(" is in a preemption cycle"),
                    ": resumed and preempted again ",
                    figure(count(row.resume_preempt_cycles, "time")),
                    f", {count(row.recomputed_tokens, 'token')} computed twice",
                ),
            ),
        )


def _inversions(runs: StepRuns) -> Iterator[Finding]:
    for request_id, inversion in runs.inversions.items():
        lower = tuple(inversion.request_ids)
        yield _finding(
            "priority_inversion",
            inversion.steps,
            (request_id, *lower),
            {"steps": list(inversion.steps), "running_with_lower_priority": list(lower), "tokens": inversion.tokens},
            Sentence(
                "▲",
                "stalled",
                say(
                    request(request_id),
                    strong(" waited while less urgent ones ran"),
                    " for ",
                    figure(count(len(inversion.steps), "step")),
                    f" ({inversion.steps[0]}–{inversion.steps[-1]}): ",
                    *listed([request(key) for key in lower], _MAX_NAMES),
                    dim(f" sampled {count(inversion.tokens, 'token')}"),
                ),
            ),
        )


def _head_of_line(runs: StepRuns) -> Iterator[Finding]:
    for head_id, blocking in runs.head_of_line.items():
        yield _finding(
            "head_of_line_blocking",
            blocking.steps,
            (head_id, *blocking.fitted),
            {
                "reason": blocking.reason,
                "steps": list(blocking.steps),
                "most_that_fitted": blocking.most,
                "fitted": {key: list(steps) for key, steps in blocking.fitted.items()},
            },
            Sentence(
                "✗",
                "refused",
                say(
                    request(head_id),
                    strong(" held up the queue"),
                    " for ",
                    figure(count(len(blocking.steps), "step")),
                    f" ({blocking.steps[0]}–{blocking.steps[-1]}) in which ",
                    *listed([request(key) for key in blocking.fitted], _MAX_NAMES),
                    " would have fitted",
                ),
            ),
        )


def _starvation(runs: StepRuns) -> Iterator[Finding]:
    for request_id, starved in runs.overtaken.items():
        if len(starved.by) < MIN_OVERTAKEN:
            continue
        yield _finding(
            "starvation",
            starved.steps,
            (request_id, *starved.by),
            {"waited_steps": len(starved.steps), "overtaken_by": list(starved.by)},
            Sentence(
                "✗",
                "stalled",
                say(
                    request(request_id),
                    strong(" starved in the queue"),
                    " for ",
                    figure(count(len(starved.steps), "step")),
                    f" while {count(len(starved.by), 'later request')} went before it: ",
                    *listed([request(key) for key in starved.by], _MAX_NAMES),
                ),
            ),
        )
    for request_id, steps in runs.skipped:
        if len(steps) < MIN_SKIPPED_STEPS:
            continue
        yield _finding(
            "starvation",
            steps,
            (request_id,),
            {"steps_without_a_token": len(steps)},
            Sentence(
                "╌",
                "stalled",
                say(
                    request(request_id),
                    strong(" ran without a token"),
                    " for ",
                    figure(count(len(steps), "step")),
                    f" on end ({steps[0]}–{steps[-1]})",
                ),
            ),
        )


def _empty_steps(runs: StepRuns) -> Iterator[Finding]:
    for empty in runs.empty:
        yield _finding(
            "empty_steps_while_waiting",
            empty.steps,
            (empty.head_id,),
            {"reason": empty.reason, "need": empty.need, "have": empty.have, "num_waiting": empty.num_waiting},
            Sentence(
                "!",
                "stalled",
                say(
                    strong("Nothing was scheduled"),
                    " in ",
                    figure(count(len(empty.steps), "step")),
                    f" ({empty.steps[0]}–{empty.steps[-1]}) while {empty.num_waiting} waited; head ",
                    request(empty.head_id),
                    f" failed {empty.reason}: needs {empty.need}, there are {empty.have}",
                ),
            ),
        )


def _long_prefills(runs: StepRuns) -> Iterator[Finding]:
    for request_id, prefill in runs.long_prefills.items():
        if len(prefill.steps) < MIN_PREFILL_STEPS:
            continue
        low, high = round(100 * min(prefill.shares)), round(100 * max(prefill.shares))
        yield _finding(
            "long_prefill_among_decoders",
            prefill.steps,
            (request_id, *prefill.decoders),
            {
                "steps": list(prefill.steps),
                "tokens": list(prefill.tokens),
                "share_pct": [round(100 * share, 1) for share in prefill.shares],
                "decoders": list(prefill.decoders),
                "forward_ns": prefill.forward_ns,
            },
            Sentence(
                "▓",
                "prefill",
                say(
                    request(request_id),
                    strong(" stretched decodes with its prefill"),
                    " in ",
                    figure(count(len(prefill.steps), "step")),
                    f" ({prefill.steps[0]}–{prefill.steps[-1]}): {low}–{high} % of their tokens, beside "
                    f"{count(len(prefill.decoders), 'decoder')}",
                ),
            ),
        )


def _lost_hits(lost: LostHits) -> Iterator[Finding]:
    if not lost.misses:
        return
    steps = sorted({miss.step for miss in lost.misses})
    owners = tuple(dict.fromkeys(miss.request_id for miss in lost.misses))
    yield _finding(
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


def _finding(
    kind: FindingKind, steps: list[int], request_ids: tuple[str, ...], figures: dict[str, Any], sentence: Sentence
) -> Finding:
    return Finding(
        kind=kind,
        first_step=steps[0],
        last_step=steps[-1],
        num_steps=len(steps),
        request_ids=request_ids,
        figures=figures,
        sentence=sentence,
    )
