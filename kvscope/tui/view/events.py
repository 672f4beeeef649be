"""The events that `n` and `N` go to, and the search for the next one, in small pieces: keys go on being heard.

Also whom an event is about: who arrives at it finds that one selected.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kvscope import events as ev
from kvscope.analysis.event_subjects import block_of, request_of
from kvscope.replay.timeline import StepSummary, Timeline

EventKind = Literal["failed", "preempted", "stalled", "hit", "evicted", "finished", "finding", "bookmark"]

KINDS: tuple[EventKind, ...] = (
    *("failed", "preempted", "stalled", "hit", "evicted", "finished"),
    *("finding", "bookmark"),
)

MARK_KINDS: frozenset[EventKind] = frozenset({"finding", "bookmark"})
"""What is noted on steps and not recorded in them."""

_TOLD_BY: dict[EventKind, type[ev.Event]] = {
    "failed": ev.StepFailed,
    "preempted": ev.RequestPreempted,
    "stalled": ev.RequestBlocked,
    "hit": ev.PrefixCacheHit,
    "finished": ev.RequestFinished,
    "evicted": ev.BlockEvicted,
}
"""What tells of each kind, the rarest first, as the timeline marks them; a stalled step is about the refused head."""

STEPS_A_PIECE = 1_000
PIECES_A_LOOK = 200


@dataclass(slots=True)
class EventTargets:
    """What counts as an event. Evictions are off at first: under load every step has some. Marks are off too."""

    kinds: set[EventKind] = field(default_factory=lambda: {"failed", "preempted", "stalled", "hit", "finished"})
    only_selected: bool = False
    """Only what happened to the selected request, of all kinds."""


def has_event(summary: StepSummary, kinds: set[EventKind]) -> bool:
    """True where the column holds an event of one of the kinds."""
    numbers: dict[EventKind, int] = {
        "failed": summary.num_failed,
        "preempted": summary.num_preemptions,
        "stalled": summary.num_stalled,
        "hit": summary.num_hits,
        "evicted": summary.num_evicted_blocks,
        "finished": summary.num_finished,
    }
    return any(numbers.get(kind) for kind in kinds)


def next_event(timeline: Timeline, step: int, direction: int, kinds: set[EventKind]) -> Iterator[int | None]:
    """Yields None after each piece of work, and at last the next step with an event, if there is one."""
    if kinds <= MARK_KINDS:
        return
    first, last = timeline.first_step, timeline.last_step
    piece = STEPS_A_PIECE
    at = step + direction
    while first <= at <= last:
        start = at - at % piece
        found = _in_piece(timeline, start, at, direction, kinds)
        if found is not None:
            yield found
            return
        yield None
        at = start + piece if direction > 0 else start - 1
        at = yield from _skip(timeline, at, direction, kinds)


def _in_piece(timeline: Timeline, start: int, at: int, direction: int, kinds: set[EventKind]) -> int | None:
    columns = timeline.summaries(start, STEPS_A_PIECE, 1)
    steps = [
        column.first_step
        for column in columns
        if has_event(column, kinds) and (column.first_step >= at if direction > 0 else column.first_step <= at)
    ]
    if not steps:
        return None
    return min(steps) if direction > 0 else max(steps)


def _skip(timeline: Timeline, at: int, direction: int, kinds: set[EventKind]) -> Generator[None, None, int]:
    """Returns where the search goes on: behind the whole pieces that hold no event."""
    piece, look = STEPS_A_PIECE, PIECES_A_LOOK
    while timeline.first_step <= at <= timeline.last_step:
        start = at - at % piece
        first = start if direction > 0 else max(start - (look - 1) * piece, 0)
        columns = timeline.summaries(first, look, piece)
        if direction < 0:
            columns = [column for column in reversed(columns) if column.first_step <= at]
        for column in columns:
            if has_event(column, kinds):
                return max(column.first_step, at) if direction > 0 else min(column.first_step + piece - 1, at)
        at = first + look * piece if direction > 0 else first - 1
        yield None
    return at


def subjects(events: Sequence[ev.Event], kinds: Collection[EventKind]) -> list[tuple[str | None, int | None]]:
    """Returns whom the rarest of these kinds in a step is about, each with the block where it is about one."""
    for kind, told_by in _TOLD_BY.items():
        told = [event for event in events if isinstance(event, told_by)] if kind in kinds else []
        if told:
            return [(request_of(event), block_of(event) if kind == "evicted" else None) for event in told]
    return []


def next_event_of_request(timeline: Timeline, request_id: str, step: int, direction: int) -> int | None:
    """Returns the next step in which something happened to the request itself."""
    row = timeline.request(request_id)
    if row is None:
        return None
    steps = [
        at
        for at, event in timeline.request_events(request_id, row.arrival_step, timeline.last_step)
        if isinstance(
            event,
            ev.RequestArrived
            | ev.RequestAdmitted
            | ev.RequestResumed
            | ev.RequestPreempted
            | ev.RequestFinished
            | ev.RequestAborted,
        )
        and event.request_id == request_id  # not that another one was preempted for it
    ]
    if row.first_token_step is not None:
        steps.append(row.first_token_step)
    if direction > 0:
        return min((at for at in steps if at > step), default=None)
    return max((at for at in steps if at < step), default=None)
