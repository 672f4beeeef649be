"""What is wrong in a run, found from recorded facts: eleven patterns that people report, each with its figures.

Pure over a timeline: one pass over the steps for what the queues did, one over the blocks for the prefix cache, one
over the prompts for what they have in common. Nothing here guesses: each finding names the steps and figures that it
follows from. Thresholds are the constants below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvscope import events as ev
from kvscope.analysis.finding import Finding, finding
from kvscope.analysis.near_prefix_findings import near_prefix_findings
from kvscope.analysis.near_prefixes import near_prefixes
from kvscope.analysis.pool_findings import lost_hit_findings, unbalanced_books
from kvscope.analysis.spans import Sentence, count, dim, figure, listed, request, say, strong
from kvscope.analysis.spans import step as step_span
from kvscope.analysis.stack_distance import lost_hits
from kvscope.analysis.step_runs import StepRuns, step_runs
from kvscope.analysis.text import visible
from kvscope.analysis.why.preempted import MIN_CYCLES
from kvscope.analysis.why.words import BLOCK_TESTS, TEST_NAMES, span_of, steps_in_short
from kvscope.replay.timeline import Timeline

__all__ = ["Finding", "find_all"]

MIN_REPEATS = 1
"""Resumptions that ended in another preemption, to be a finding; `MIN_CYCLES` of them are called a cycle."""
MIN_OVERTAKEN = 2
"""Requests that arrived later and were admitted first, to speak of starvation in the queue."""
MIN_SKIPPED_STEPS = 3
"""Steps on end without a token, to speak of starvation of a running request."""
MIN_PREFILL_STEPS = 2
"""Steps in which one prompt took most of the tokens while others decoded."""
_MAX_NAMES = 4


def find_all(timeline: Timeline, early: Callable[[list[Finding], int], None] | None = None) -> list[Finding]:
    """Returns all findings of a recording, those of one kind together, the gravest kind first. Moves the timeline.

    `early` is told now and then what the queues have done so far, and up to which step.
    """

    def tell(runs: StepRuns, step: int) -> None:
        if early is not None:
            early(_of_queues(runs), step)

    runs = step_runs(timeline, tell)
    lost = lost_hits(timeline)
    return [
        *_failed_steps(timeline),
        *_of_queues(runs),
        *lost_hit_findings(lost),
        *near_prefix_findings(timeline, near_prefixes(timeline)),
    ]


def _of_queues(runs: StepRuns) -> list[Finding]:
    return [
        *unbalanced_books(runs),
        *_never_fits(runs),
        *_cycles(runs),
        *_inversions(runs),
        *_head_of_line(runs),
        *_starvation(runs),
        *_empty_steps(runs),
        *_long_prefills(runs),
    ]


def _failed_steps(timeline: Timeline) -> Iterator[Finding]:
    for step, events in timeline.select_events((ev.StepFailed,), timeline.first_step, timeline.last_step):
        for event in events:
            assert isinstance(event, ev.StepFailed)
            yield finding(
                "failed_step",
                [step],
                (),
                {"phase": event.phase, "error_type": event.error_type, "message": event.message},
                Sentence(
                    "✖",
                    "failed",
                    say(
                        strong("The engine stopped"),
                        " at step ",
                        step_span(step),
                        f": {event.phase} raised ",
                        figure(visible(event.error_type)),
                        f": {visible(event.message)}" if event.message else "",
                    ),
                ),
            )


def _never_fits(runs: StepRuns) -> Iterator[Finding]:
    for request_id, waits in runs.never_fits.items():
        need, pool = waits.need, waits.have
        unit = "blocks" if waits.unit == "blocks" else "tokens"
        limit = f"the pool has {pool}" if unit == "blocks" else f"a step takes {pool} and prompts may not be cut"
        yield finding(
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
        if row.resume_preempt_cycles < MIN_REPEATS:
            continue
        is_cycle = row.resume_preempt_cycles >= MIN_CYCLES
        yield finding(
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
                    strong(" is in a preemption cycle" if is_cycle else " was preempted again"),
                    ": resumed and preempted again " if is_cycle else " after it was resumed",
                    figure(count(row.resume_preempt_cycles, "time") if is_cycle else ""),
                    f", {count(row.recomputed_tokens, 'token')} computed twice",
                ),
            ),
        )


def _inversions(runs: StepRuns) -> Iterator[Finding]:
    priorities = {row.request_id: row.priority for row in runs.overview.requests}
    for request_id, inversion in runs.inversions.items():
        lower = tuple(inversion.request_ids)
        ran = [priorities[key] for key in lower]
        yield finding(
            "priority_inversion",
            inversion.steps,
            (request_id, *lower),
            {"steps": list(inversion.steps), "running_with_lower_priority": list(lower), "tokens": inversion.tokens},
            Sentence(
                "▲",
                "stalled",
                say(
                    request(request_id),
                    dim(f" (priority {priorities[request_id]})"),
                    strong(" waited while less urgent ones ran"),
                    " for ",
                    figure(count(len(inversion.steps), "step")),
                    f" ({steps_in_short(inversion.steps)}): ",
                    *listed([request(key) for key in lower], _MAX_NAMES),
                    dim(f" ({span_of(min(ran), max(ran))}) sampled {count(inversion.tokens, 'token')}"),
                ),
            ),
        )


def _head_of_line(runs: StepRuns) -> Iterator[Finding]:
    for head_id, blocking in runs.head_of_line.items():
        yield finding(
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
                    f" ({steps_in_short(blocking.steps)}) in which ",
                    *listed([request(key) for key in blocking.fitted], _MAX_NAMES),
                    " would have fitted",
                ),
            ),
        )


def _starvation(runs: StepRuns) -> Iterator[Finding]:
    for request_id, starved in runs.overtaken.items():
        if len(starved.by) < MIN_OVERTAKEN:
            continue
        yield finding(
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
        yield finding(
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
        yield finding(
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
                    f" ({steps_in_short(empty.steps)}) while {empty.num_waiting} waited; the head was ",
                    request(empty.head_id),
                    f": {TEST_NAMES[empty.reason]}",
                    f", {empty.need} needed, {empty.have} there" if empty.reason in BLOCK_TESTS else "",
                ),
            ),
        )


def _long_prefills(runs: StepRuns) -> Iterator[Finding]:
    for request_id, prefill in runs.long_prefills.items():
        if len(prefill.steps) < MIN_PREFILL_STEPS:
            continue
        low, high = round(100 * min(prefill.shares)), round(100 * max(prefill.shares))
        yield finding(
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
                    f" ({steps_in_short(prefill.steps)}): {span_of(low, high)} % of their tokens",
                    f", beside {count(len(prefill.decoders), 'decoder')}",
                ),
            ),
        )
