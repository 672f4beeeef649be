"""TTFT, queue time, inter-token latency and end-to-end time of each request, in nanoseconds or, without a clock, steps.

- TTFT: from the submission to the end of the step that sampled the first token. Template and tokenization are in it.
- queue: from the moment it was ready (template and tokenization done) to the start of the step that first admitted it.
- ITL: the gaps between the ends of the steps of neighbouring tokens; several tokens of one step have gaps of 0.
- end-to-end: from the submission to the end of its last step; only of requests that ended by themselves.

In steps, a request that arrives before step 7 and samples in it has a TTFT of 1 step and waited 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from kvscope.analysis.request_figures import RequestFigures
from kvscope.analysis.run_figures import RunFigures

Unit = Literal["ns", "steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLatency:
    """One request's times; None where the event that ends the time has not happened."""

    request_id: str
    input_processing: int
    """Template and tokenization; 0 in steps."""
    queue: int | None
    ttft: int | None
    end_to_end: int | None
    itls: tuple[int, ...]


def unit_of(figures: RunFigures) -> Unit:
    """Returns the unit that a run's times can have."""
    return "ns" if figures.is_timed else "steps"


def latencies(figures: RunFigures, unit: Unit, request_ids: Iterable[str] | None = None) -> list[RequestLatency]:
    """Returns the times of all requests (or of these), by arrival."""
    chosen = figures.requests if request_ids is None else request_ids
    measure = _in_ns if unit == "ns" else _in_steps
    return [measure(figures, figures.requests[request_id]) for request_id in chosen]


def _in_ns(figures: RunFigures, request: RequestFigures) -> RequestLatency:
    first, starts, ends = figures.steps.first_step, figures.steps.start_ns, figures.steps.end_ns
    ready_ns = request.arrival_ns + request.template_ns + request.tokenize_ns
    times = [ends[step - first] for step in request.token_steps]
    admitted, finished = request.first_admitted_step, request.finished_step
    return RequestLatency(
        request_id=request.request_id,
        input_processing=request.template_ns + request.tokenize_ns,
        queue=None if admitted is None else max(starts[admitted - first] - ready_ns, 0),
        ttft=times[0] - request.arrival_ns if times else None,
        end_to_end=ends[finished - first] - request.arrival_ns
        if _has_ended(request) and finished is not None
        else None,
        itls=tuple(later - earlier for earlier, later in pairwise(times)),
    )


def _in_steps(figures: RunFigures, request: RequestFigures) -> RequestLatency:
    admitted, finished, tokens = request.first_admitted_step, request.finished_step, request.token_steps
    arrival = request.arrival_step
    return RequestLatency(
        request_id=request.request_id,
        input_processing=0,
        queue=None if admitted is None else admitted - arrival,
        ttft=tokens[0] - arrival + 1 if tokens else None,
        end_to_end=finished - arrival + 1 if _has_ended(request) and finished is not None else None,
        itls=tuple(later - earlier for earlier, later in pairwise(tokens)),
    )


def _has_ended(request: RequestFigures) -> bool:
    return request.finish_reason in ("stop", "length")
