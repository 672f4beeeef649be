"""Two recordings up to the first step in which they decide differently, what each decided from, and what followed.

Requests are the same where their ids and prompts are, or else by content: equal prompt tokens, salt and adapter, in the
order of their arrival.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kvscope import events as ev
from kvscope.analysis.comparison import Comparison, compare
from kvscope.analysis.run_figures import FIGURE_KINDS
from kvscope.errors import RecordingError
from kvscope.replay.timeline import Timeline

Matching = Literal["auto", "id", "content"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedRequests:
    """Which request of recording B is which one of A."""

    by: Literal["id", "content"]
    names: dict[str, str]
    """Each of B's ids to A's id. An unmatched one of B keeps its id, or gets " (B)" behind it where A has that id."""
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingBefore:
    """What a step was decided from, after the step before it; all empty before the first step."""

    waiting: tuple[str, ...]
    running: tuple[str, ...]
    num_free_blocks: int
    num_cached_blocks: int
    """Free and still hittable."""
    arrived: tuple[str, ...]
    """What came in at the head of the step itself."""
    aborted: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Divergence:
    """Two recordings and where they part."""

    settings: dict[str, tuple[Any, Any]]
    """The settings in which they differ, A's and B's; None where one lacks it."""
    matched: MatchedRequests
    comparison: Comparison
    """`base` is A and `changed` is B, under A's ids."""
    before: tuple[StandingBefore, StandingBefore] | None
    """What the first different decisions were taken from; None where there is no difference or one run had ended."""


def diverge(a: Timeline, b: Timeline, matching: Matching = "auto") -> Divergence:
    """Compares two recordings. Moves both timelines. Raises `RecordingError` where one has no steps."""
    for timeline in (a, b):
        if timeline.last_step < 0:
            raise RecordingError(f"{timeline.path} has no step yet: there is nothing to compare")
    matched = match_requests(a, b, matching)
    comparison = compare(
        a.select_events(FIGURE_KINDS, a.first_step, a.last_step),
        b.select_events(FIGURE_KINDS, b.first_step, b.last_step),
        matched.names,
    )
    difference = comparison.first_difference
    before = None
    if difference is not None and difference.base is not None and difference.changed is not None:
        before = _standing(a, difference.step, {}), _standing(b, difference.step, matched.names)
    return Divergence(settings=_settings(a, b), matched=matched, comparison=comparison, before=before)


def match_requests(a: Timeline, b: Timeline, matching: Matching = "auto") -> MatchedRequests:
    """Finds each request of B among those of A. "auto" goes by id where no id stands for two different prompts."""
    ours, theirs = _contents(a), _contents(b)
    if matching == "auto":
        common = ours.keys() & theirs.keys()
        is_same = all(ours[request_id] == theirs[request_id] for request_id in common)
        matching = "id" if common and is_same else "content"
    if matching == "id":
        found = {request_id: request_id for request_id in theirs if request_id in ours}
    else:
        open_ids: defaultdict[Any, deque[str]] = defaultdict(deque)
        for request_id, content in ours.items():
            open_ids[content].append(request_id)
        found = {request_id: open_ids[content].popleft() for request_id, content in theirs.items() if open_ids[content]}
    only_in_b = tuple(request_id for request_id in theirs if request_id not in found)
    names = found | {request_id: f"{request_id} (B)" if request_id in ours else request_id for request_id in only_in_b}
    taken = set(found.values())
    return MatchedRequests(
        by=matching,
        names=names,
        only_in_a=tuple(request_id for request_id in ours if request_id not in taken),
        only_in_b=only_in_b,
    )


def _contents(timeline: Timeline) -> dict[str, tuple[tuple[int, ...], str | None, str | None]]:
    """Returns prompt, salt and adapter of each request, by arrival."""
    return {
        event.request_id: (event.prompt_token_ids, event.cache_salt, event.lora_name)
        for _, events in timeline.select_events((ev.RequestArrived,), timeline.first_step, timeline.last_step)
        for event in events
        if isinstance(event, ev.RequestArrived)
    }


def _settings(a: Timeline, b: Timeline) -> dict[str, tuple[Any, Any]]:
    ours = {} if a.config is None else a.config.settings
    theirs = {} if b.config is None else b.config.settings
    names = dict.fromkeys([*ours, *theirs])
    differing = {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}
    if a.config is not None and b.config is not None and a.config.model != b.config.model:
        differing["model"] = a.config.model, b.config.model
    return differing


def _standing(timeline: Timeline, step: int, names: Mapping[str, str]) -> StandingBefore:
    came: dict[type, list[str]] = {ev.RequestArrived: [], ev.RequestAborted: []}
    for _, events in timeline.select_events((ev.RequestArrived, ev.RequestAborted), step, step):
        for event in events:
            if isinstance(event, ev.RequestArrived) or (
                isinstance(event, ev.RequestAborted) and not event.during_execution
            ):
                came[type(event)].append(names.get(event.request_id, event.request_id))
    arrived, aborted = tuple(came[ev.RequestArrived]), tuple(came[ev.RequestAborted])
    if step <= timeline.first_step:
        free = timeline.config.num_gpu_blocks - 1 if timeline.config is not None else 0
        return StandingBefore(
            waiting=(), running=(), num_free_blocks=free, num_cached_blocks=0, arrived=arrived, aborted=aborted
        )
    state = timeline.at(step - 1).state
    return StandingBefore(
        waiting=tuple(names.get(request_id, request_id) for request_id in state.waiting),
        running=tuple(names.get(request_id, request_id) for request_id in state.running),
        num_free_blocks=state.num_free_blocks,
        num_cached_blocks=state.num_cached_free_blocks,
        arrived=arrived,
        aborted=aborted,
    )
