"""The columns of figures that the rows of the queues have where there is room for them."""

from __future__ import annotations

from collections.abc import Mapping

from kvscope.state import RequestState
from kvscope.tui.view.lines import EMPTY, Line, Span

MIN_COLUMNS = 76
"""A list that is as wide has room for the figures."""

WAITING_TITLE = f"{'tokens':>8}{'since':>8}{'preempted':>11}{'steps waited':>14} "
RUNNING_TITLE = f"{'computed':>13}{'output':>11}{'since':>8}{'preempted':>11}"

Figures = Mapping[str, RequestState]
"""The requests of the rows, by id; empty where the rows have no figures."""


def waiting_figures(figures: Figures, request_id: str) -> Line:
    """Returns a waiting request's tokens, the step of its arrival, and how often it was preempted."""
    request = figures.get(request_id)
    if request is None:
        return EMPTY
    return (
        Span(f"{request.num_tokens:>8}"),
        Span(f"{request.arrival_step:>8}", "dim"),
        _preemptions(request),
        Span(" " * 7),
    )


def running_figures(figures: Figures, request_id: str) -> Line:
    """Returns a running request's progress and output, the step of its arrival, and how often it was preempted."""
    request = figures.get(request_id)
    if request is None:
        return EMPTY
    total = request.num_prompt_tokens + request.max_tokens
    return (
        Span(f"{f'{request.num_computed_tokens}/{total}':>13}"),
        Span(f"{f'{request.num_output_tokens}/{request.max_tokens}':>11}"),
        Span(f"{request.arrival_step:>8}", "dim"),
        _preemptions(request),
    )


def _preemptions(request: RequestState) -> Span:
    text = f"{request.num_preemptions}×" if request.num_preemptions else ""
    return Span(f"{text:>11}", "preempted")
