"""The classic wrong readings of a run's figures, named where the figures show them: each with what they really say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvscope.analysis.latencies import RequestLatency, all_gaps
from kvscope.analysis.run_figures import RunFigures
from kvscope.analysis.verdict_words import BLOCK_TESTS

_LOW_BUDGET_USE = 0.5
_QUEUE_SHARE = 0.5
_OWN_SHARE = 0.5
_TAIL = 5.0
"""A 99th percentile this many times the median is a tail of its own."""

Reading = Literal["budget_use", "ttft_is_queueing", "own_hits", "mean_hides_tail"]


@dataclass(frozen=True, slots=True)
class Warning:
    """One wrong reading that lies near."""

    reading: Reading
    text: str


def wrong_readings(figures: RunFigures, times: list[RequestLatency]) -> list[Warning]:
    """Returns the wrong readings that the figures invite."""
    return [*_budget_use(figures), *_queueing(times), *_own_hits(figures), *_tails(times)]


def budget_use(figures: RunFigures) -> float | None:
    """Returns the share of the token budget that was used, over the steps that scheduled anything."""
    steps = figures.steps
    busy = [index for index in range(len(steps)) if steps.num_scheduled_requests[index]]
    budget = sum(steps.token_budget[index] for index in busy)
    if not budget:
        return None
    return sum(steps.num_prefill_tokens[index] + steps.num_decode_tokens[index] for index in busy) / budget


def _budget_use(figures: RunFigures) -> Iterator[Warning]:
    """Low use with a full queue: something else than the budget keeps requests out."""
    use = budget_use(figures)
    stops = figures.stops_with_waiting
    num_waiting_steps = stops.total()
    by_budget = stops["budget"] + stops["chunked_prefill_off"] + stops["spec_pad_budget"]
    others = {"sequences": stops["max_num_seqs"], "blocks": sum(stops[test] for test in BLOCK_TESTS)}
    cause = max(others, key=lambda name: others[name])
    if use is None or use >= _LOW_BUDGET_USE or not num_waiting_steps or others[cause] <= by_budget:
        return
    lacking = "max_num_seqs" if cause == "sequences" else "num_gpu_blocks"
    yield Warning(
        "budget_use",
        f"The budget is used to {use:.0%}, but it is not what keeps requests waiting: of the {num_waiting_steps} steps "
        f"after which somebody waited, {others[cause]} ended for lack of {cause} and {by_budget} for lack of budget. "
        f"A larger budget admits nobody; look at {lacking}.",
    )


def _queueing(times: list[RequestLatency]) -> Iterator[Warning]:
    """A long TTFT that was spent in the queue says nothing about the model."""
    served = [time for time in times if time.ttft is not None and time.queue is not None]
    total = sum(time.ttft or 0 for time in served)
    queue = sum(time.queue or 0 for time in served)
    if total and queue / total > _QUEUE_SHARE:
        yield Warning(
            "ttft_is_queueing",
            f"{queue / total:.0%} of all time to first token was spent waiting for admission, before the first prompt "
            "token was computed: a faster model or a shorter prompt changes only the rest.",
        )


def _own_hits(figures: RunFigures) -> Iterator[Warning]:
    """Hits of preempted requests on their own blocks are no reuse."""
    total = figures.num_hit_tokens
    own = sum(request.num_own_hit_tokens for request in figures.requests.values())
    if total and own / total >= _OWN_SHARE:
        whose = "All" if own == total else f"{own / total:.0%} of"
        yield Warning(
            "own_hits",
            f"{whose} {total} hit tokens are a preempted request's own ({own}): they were computed by the request "
            "that hits them, and save nothing that a run without preemption would not have had.",
        )


def _tails(times: list[RequestLatency]) -> Iterator[Warning]:
    """A mean that looks fine over a tail that does not."""
    gaps = all_gaps(times)
    if len(gaps) < 100:
        return
    median, tail = gaps[len(gaps) // 2], gaps[int(len(gaps) * 0.99)]
    if median and tail >= _TAIL * median:
        yield Warning(
            "mean_hides_tail",
            f"The 99th percentile of the inter-token gaps is {tail / median:.1f} times the median: the mean hides "
            "stalls. `kvscope why FILE REQUEST` names what stretched the worst ones.",
        )
