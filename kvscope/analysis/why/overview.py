"""What a run as a whole has to explain: one row for each request, and the prefix cache's sums.

`why` without a request: to see whom to ask about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvscope import events as ev
from kvscope.analysis.request_figures import RequestFigures
from kvscope.analysis.run_figures import FIGURE_KINDS, run_figures
from kvscope.replay.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """One request."""

    request_id: str
    priority: int
    prompt_tokens: int
    output_tokens: int
    arrival_step: int
    first_admitted_step: int | None
    first_token_step: int | None
    finished_step: int | None
    finish_reason: str | None
    waited_steps: int
    """Before its first admission."""
    waited_steps_in_all: int
    preemptions: tuple[int, ...]
    """Steps."""
    resumes: tuple[int, ...]
    """Steps."""
    resume_preempt_cycles: int
    recomputed_tokens: int
    own_hit_tokens: int
    others_hit_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """The counters that vLLM itself keeps: split by whether the request had been preempted, not by whose blocks."""

    requests: int
    queries: int
    hits: int
    preempted_requests: int
    preempted_queries: int
    preempted_hits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSums:
    """All hits of the run."""

    self_hit_tokens: int
    """In blocks that the request itself had computed, before it was preempted."""
    cross_hit_tokens: int
    """In blocks of others."""
    total_hit_tokens: int
    cross_tokens_inside_preempted_hits: int
    """Of `engine_counters.preempted_hits`: in blocks of others all the same."""
    engine_counters: EngineCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The run."""

    num_steps: int
    requests: tuple[RequestLine, ...]
    """By arrival."""
    waiting_at_end: tuple[str, ...]
    """In arrival order."""
    never_preempted: tuple[str, ...]
    most_preempted: str | None
    num_preemptions: int
    recomputed_tokens: int
    stop_steps: dict[str, int]
    """In how many steps admission stopped on which test."""
    hits: CacheSums


def overview(timeline: Timeline) -> Overview:
    """Returns the figures of the whole recording, in one pass over its events."""
    late_ids: set[str] = set()
    figures = run_figures(_noting_late_aborts(timeline, late_ids))
    last_step = timeline.last_step
    rows = [_row(request, last_step, request.request_id in late_ids) for request in figures.requests.values()]
    worst = max(rows, key=lambda row: len(row.preemptions), default=None)
    return Overview(
        num_steps=figures.num_steps,
        requests=tuple(rows),
        waiting_at_end=tuple(
            row.request_id for row in rows if row.finished_step is None and len(row.preemptions) == _num_admissions(row)
        ),
        never_preempted=tuple(row.request_id for row in rows if not row.preemptions),
        most_preempted=worst.request_id if worst is not None and worst.preemptions else None,
        num_preemptions=len(figures.preemptions),
        recomputed_tokens=figures.num_recomputed_tokens,
        stop_steps=dict(Counter(figures.stops)),
        hits=_cache_sums(list(figures.requests.values())),
    )


def _num_admissions(row: RequestLine) -> int:
    return len(row.resumes) + (row.first_admitted_step is not None)


def _noting_late_aborts(timeline: Timeline, request_ids: set[str]) -> Iterator[tuple[int, Sequence[ev.Event]]]:
    """Yields the events of the run, and adds the requests that were aborted while they waited and a step executed."""
    for step, events in timeline.select_events(FIGURE_KINDS, timeline.first_step, timeline.last_step):
        for event in events:
            if isinstance(event, ev.RequestAborted) and event.during_execution and event.status != "RUNNING":
                request_ids.add(event.request_id)
        yield step, events


def _row(request: RequestFigures, last_step: int, was_aborted_late: bool) -> RequestLine:
    """`was_aborted_late`: it still waited when the admission of its last step stopped."""
    admitted = request.first_admitted_step
    end = request.finished_step + was_aborted_late if request.finished_step is not None else last_step + 1
    resumes = [admission.step for admission in request.admissions[1:]]
    waits = [(request.arrival_step, admitted if admitted is not None else end)]
    for index, step in enumerate(request.preempted_steps):
        waits.append((step, resumes[index] if index < len(resumes) else end))
    return RequestLine(
        request_id=request.request_id,
        priority=request.priority,
        prompt_tokens=request.num_prompt_tokens,
        output_tokens=request.num_output_tokens,
        arrival_step=request.arrival_step,
        first_admitted_step=admitted,
        first_token_step=request.first_token_step,
        finished_step=request.finished_step,
        finish_reason=request.finish_reason,
        waited_steps=waits[0][1] - waits[0][0],
        waited_steps_in_all=sum(end - start for start, end in waits),
        preemptions=tuple(request.preempted_steps),
        resumes=tuple(resumes),
        resume_preempt_cycles=max(min(len(resumes), len(request.preempted_steps) - 1), 0),
        recomputed_tokens=request.num_recomputed_tokens,
        own_hit_tokens=request.num_own_hit_tokens,
        others_hit_tokens=request.num_hit_tokens - request.num_own_hit_tokens,
    )


def _cache_sums(requests: list[RequestFigures]) -> CacheSums:
    first = [request.admissions[0] for request in requests if request.admissions]
    again = [admission for request in requests for admission in request.admissions[1:]]
    own = sum(admission.num_own_hit_tokens for admission in [*first, *again])
    total = sum(admission.num_hit_tokens for admission in [*first, *again])
    return CacheSums(
        self_hit_tokens=own,
        cross_hit_tokens=total - own,
        total_hit_tokens=total,
        cross_tokens_inside_preempted_hits=sum(a.num_hit_tokens - a.num_own_hit_tokens for a in again),
        engine_counters=EngineCounters(
            requests=len(first),
            queries=sum(admission.num_tokens for admission in first),
            hits=sum(admission.num_hit_tokens for admission in first),
            preempted_requests=len(again),
            preempted_queries=sum(admission.num_tokens for admission in again),
            preempted_hits=sum(admission.num_hit_tokens for admission in again),
        ),
    )
