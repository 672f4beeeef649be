"""TTFT, queue time, inter-token latency and end-to-end time of each request, in nanoseconds or, without a clock, steps.

- TTFT: from the submission to the end of the step that sampled the first token. Template and tokenization are in it.
- queue: from the moment it was ready (template and tokenization done) to the start of the step that first admitted it.
- ITL: the gaps between the ends of the steps of neighbouring tokens; several tokens of one step have gaps of 0.
- end-to-end: from the submission to the end of its last step; only of requests that ended by themselves.

In steps, a request that arrives before step 7 and samples in it has a TTFT of 1 step and waited 0.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from kvscope.analysis.percentiles import Counted
from kvscope.analysis.request_figures import RequestFigures, TokenSteps
from kvscope.analysis.run_figures import RunFigures

Unit = Literal["ns", "steps"]


class Gaps(Collection[int]):
    """The gaps between the tokens of a request, worked out when they are asked for: they may be many."""

    __slots__ = ("ends", "first_step", "steps")

    def __init__(self, steps: TokenSteps, ends: Sequence[int] | None, first_step: int) -> None:
        """`ends`: the ends of the steps from the first one on in ns; None where the gaps are in steps."""
        self.steps, self.ends, self.first_step = steps, ends, first_step

    def __len__(self) -> int:
        return max(len(self.steps) - 1, 0)

    def __iter__(self) -> Iterator[int]:
        return (self.gap(earlier, later) for earlier, later in pairwise(self.steps))

    def __contains__(self, gap: object) -> bool:
        return any(gap == own for own in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Iterable) and tuple(self) == tuple(other)

    def gap(self, earlier: int, later: int) -> int:
        """Returns the time between two steps."""
        if self.ends is None:
            return later - earlier
        return self.ends[later - self.first_step] - self.ends[earlier - self.first_step]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLatency:
    """One request's times; None where the event that ends the time has not happened."""

    request_id: str
    input_processing: int
    """Template and tokenization; 0 in steps."""
    queue: int | None
    ttft: int | None
    end_to_end: int | None
    itls: Gaps | tuple[int, ...]


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
    admitted, finished, token = request.first_admitted_step, request.finished_step, request.first_token_step
    return RequestLatency(
        request_id=request.request_id,
        input_processing=request.template_ns + request.tokenize_ns,
        queue=None if admitted is None else max(starts[admitted - first] - ready_ns, 0),
        ttft=None if token is None else ends[token - first] - request.arrival_ns,
        end_to_end=ends[finished - first] - request.arrival_ns
        if _has_ended(request) and finished is not None
        else None,
        itls=Gaps(request.token_steps, ends, first),
    )


def _in_steps(figures: RunFigures, request: RequestFigures) -> RequestLatency:
    admitted, finished, token = request.first_admitted_step, request.finished_step, request.first_token_step
    arrival = request.arrival_step
    return RequestLatency(
        request_id=request.request_id,
        input_processing=0,
        queue=None if admitted is None else admitted - arrival,
        ttft=None if token is None else token - arrival + 1,
        end_to_end=finished - arrival + 1 if _has_ended(request) and finished is not None else None,
        itls=Gaps(request.token_steps, None, 0),
    )


def all_gaps(times: Iterable[RequestLatency]) -> Counted:
    """Returns the gaps of these requests together. Those of steps on end are counted by step, not looked at one by one:
    all that decode in two of them have the same gap there."""
    counts: Counter[int] = Counter()
    by_clock: dict[tuple[int, int], tuple[Gaps, Counter[int]]] = {}
    for time in times:
        gaps = time.itls
        if not isinstance(gaps, Gaps):
            counts.update(gaps)
            continue
        _, changes = by_clock.setdefault((id(gaps.ends), gaps.first_step), (gaps, Counter()))
        last: int | None = None
        for first, length in gaps.steps.stretches():
            if last is not None:
                counts[gaps.gap(last, first)] += 1
            if length > 1:
                changes[first + 1] += 1
                changes[first + length] -= 1
            last = first + length - 1
    values, numbers = array("q", counts.keys()), array("q", counts.values())
    for gaps, changes in by_clock.values():
        num_requests = 0
        for begin, end in pairwise(sorted(changes)):
            num_requests += changes[begin]
            if num_requests and gaps.ends is None:
                values.append(1)
                numbers.append(num_requests * (end - begin))
            elif num_requests:
                for step in range(begin, end):
                    values.append(gaps.gap(step - 1, step))
                    numbers.append(num_requests)
    return Counted(values, numbers)


def _has_ended(request: RequestFigures) -> bool:
    return request.finish_reason in ("stop", "length")
