"""Two runs of one workload side by side: where they first decide differently, and what it led to.

The runs may be recordings or runs that were only simulated. Pure; requests of the second run have the first one's ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from kvscope import events as ev
from kvscope.analysis.decisions import Decision, decision, differing_fields
from kvscope.analysis.request_figures import RequestFigures
from kvscope.analysis.run_figures import FigureCollector, RunFigures

Steps = Iterable[tuple[int, Sequence[ev.Event]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first step in which two runs decide differently. A run that had ended before has no decision."""

    step: int
    base: Decision | None
    changed: Decision | None
    fields: tuple[str, ...]
    """In what they differ, by the names of `Decision`; empty where one run had ended."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure of both runs."""

    base: int | None
    changed: int | None

    @property
    def differs(self) -> bool:
        return self.base != self.changed


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPair:
    """What became of one request in both runs; steps, None where it has not happened. An abort is no finish."""

    request_id: str
    first_admitted: Pair
    first_token: Pair
    finished: Pair
    num_preemptions: Pair
    num_recomputed_tokens: Pair
    num_hit_tokens: Pair
    num_output_tokens: Pair

    @property
    def differs(self) -> bool:
        return any(
            pair.differs
            for pair in (
                self.first_admitted,
                self.first_token,
                self.finished,
                self.num_preemptions,
                self.num_recomputed_tokens,
                self.num_hit_tokens,
                self.num_output_tokens,
            )
        )


@dataclass(slots=True, kw_only=True)
class Comparison:
    """Two runs and their differences."""

    base: RunFigures
    changed: RunFigures
    first_difference: FirstDifference | None
    requests: list[RequestPair] = field(default_factory=list)
    """Of every request of either run, by arrival."""


def compare(base: Steps, changed: Steps, changed_names: Mapping[str, str] | None = None) -> Comparison:
    """Reads two runs in step and compares them. `changed_names` turns the second run's request ids into the first's."""
    names = dict(changed_names or {})
    of_base, of_changed = FigureCollector(), FigureCollector()
    difference: FirstDifference | None = None
    for left, right in zip_longest(base, changed):
        if left is not None:
            of_base.note_step(*left)
        if right is not None:
            of_changed.note_step(*right)
        if difference is None:
            difference = _difference(left, right, names)
    return Comparison(
        base=of_base.figures,
        changed=of_changed.figures,
        first_difference=difference,
        requests=_request_pairs(of_base.figures, of_changed.figures, names),
    )


def _difference(
    left: tuple[int, Sequence[ev.Event]] | None,
    right: tuple[int, Sequence[ev.Event]] | None,
    names: Mapping[str, str],
) -> FirstDifference | None:
    base = None if left is None else decision(left[1])
    changed = None if right is None else decision(right[1], names)
    if base == changed:
        return None
    step = left[0] if left is not None else right[0] if right is not None else 0
    fields = differing_fields(base, changed) if base is not None and changed is not None else ()
    return FirstDifference(step=step, base=base, changed=changed, fields=fields)


def _request_pairs(base: RunFigures, changed: RunFigures, names: Mapping[str, str]) -> list[RequestPair]:
    others = {names.get(request_id, request_id): request for request_id, request in changed.requests.items()}
    return [
        _request_pair(request_id, base.requests.get(request_id), others.get(request_id))
        for request_id in dict.fromkeys([*base.requests, *others])
    ]


def _request_pair(request_id: str, one: RequestFigures | None, other: RequestFigures | None) -> RequestPair:
    def pair(of: Callable[[RequestFigures], int | None]) -> Pair:
        return Pair(of(one) if one else None, of(other) if other else None)

    return RequestPair(
        request_id=request_id,
        first_admitted=pair(lambda request: request.first_admitted_step),
        first_token=pair(lambda request: request.first_token_step),
        finished=pair(_finished_by_itself),
        num_preemptions=pair(lambda request: len(request.preempted_steps)),
        num_recomputed_tokens=pair(lambda request: request.num_recomputed_tokens),
        num_hit_tokens=pair(lambda request: request.num_hit_tokens),
        num_output_tokens=pair(lambda request: request.num_output_tokens),
    )


def _finished_by_itself(request: RequestFigures) -> int | None:
    return None if request.finish_reason == "abort" else request.finished_step
