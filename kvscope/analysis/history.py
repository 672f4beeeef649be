"""One request's own events over its life, and the turning points that follow from them.

Read once for each request and continued as time goes on. Asks the recording for this request's events only, so that a
life of many thousand steps costs what happened in it, not what it lasted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from kvscope import events as ev
from kvscope.analysis.memory import remembered
from kvscope.replay.timeline import RequestRow, Timeline

_MAX_REQUESTS = 16
"""Histories kept at once: the selected request and those looked at lately."""
_MAX_SAMPLES = 10_000


@dataclass(slots=True)
class RequestHistory:
    """The events of a request up to and including `last_step`, in order."""

    request_id: str
    first_step: int
    last_step: int
    events: list[tuple[int, ev.Event]] = field(default_factory=list)

    def until(self, step: int) -> list[tuple[int, ev.Event]]:
        """Returns the events of the steps up to `step`."""
        if step >= self.last_step:
            return self.events
        return [(at, event) for at, event in self.events if at <= step]


TurningKind = Literal["arrived", "admitted", "decoding", "preempted", "ended", "aborted"]


@dataclass(frozen=True, slots=True)
class Turn:
    """From `step` on the request is in another state; `decoding` begins in the step after its prefill's last."""

    step: int
    kind: TurningKind
    num_tokens: int = 0
    """Of `admitted` all its tokens, of `preempted` the computed tokens thrown away."""
    num_hit_tokens: int = 0


def request_history(timeline: Timeline, request_id: str, last_step: int) -> RequestHistory | None:
    """Returns a request's events up to a step, possibly beyond; None where it never arrived."""
    histories = _kept(timeline, "histories")
    history = histories.get(request_id)
    if history is None:
        row = timeline.request(request_id)
        if row is None:
            return None
        history = RequestHistory(request_id, row.arrival_step, row.arrival_step - 1)
        if len(histories) >= _MAX_REQUESTS:
            del histories[next(iter(histories))]
        histories[request_id] = history
    assert isinstance(history, RequestHistory)
    last_step = min(last_step, timeline.last_step)
    if last_step > history.last_step:
        history.events.extend(timeline.request_events(request_id, history.last_step + 1, last_step))
        history.last_step = last_step
    return history


def turns(timeline: Timeline, request_id: str, last_step: int) -> list[Turn]:
    """Returns the turning points of a request up to a step, in order."""
    history = request_history(timeline, request_id, last_step)
    row = timeline.request(request_id)
    if history is None or row is None:
        return []
    found: list[Turn] = []
    for step, event in history.until(last_step):
        match event:
            case ev.RequestArrived():
                found.append(Turn(step, "arrived"))
            case ev.RequestAdmitted() | ev.RequestResumed():
                found.append(Turn(step, "admitted", event.num_tokens, event.num_hit_tokens))
            case ev.RequestPreempted() if event.request_id == request_id:
                found.append(Turn(step, "preempted", event.num_lost_tokens))
            case ev.RequestFinished():
                found.append(Turn(step, "ended"))
            case ev.RequestAborted():
                found.append(Turn(step, "aborted"))
            case _:
                pass
    return _with_decoding(timeline, row, found, last_step)


def _with_decoding(timeline: Timeline, row: RequestRow, found: list[Turn], last_step: int) -> list[Turn]:
    """Adds where each prefill was complete: the step in which the request sampled for the first time since."""
    complete: list[Turn] = []
    for index, turn in enumerate(found):
        complete.append(turn)
        if turn.kind == "admitted":
            end = found[index + 1].step if index + 1 < len(found) else last_step
            sampled = _first_sample(timeline, row, turn.step, end)
            if sampled is not None and sampled < end:
                complete.append(Turn(sampled + 1, "decoding"))
    return complete


def _first_sample(timeline: Timeline, row: RequestRow, first_step: int, last_step: int) -> int | None:
    """Returns the first step from `first_step` on in which the request sampled a token."""
    if first_step == row.first_admitted_step and row.first_token_step is not None:
        return row.first_token_step if row.first_token_step <= last_step else None
    samples = _kept(timeline, "samples")
    found = samples.get((row.request_id, first_step))
    if isinstance(found, int):
        return found if found <= last_step else None
    for step, events in timeline.select_events((ev.TokensSampled,), first_step, last_step):
        for event in events:
            if isinstance(event, ev.TokensSampled) and row.request_id in event.request_ids:
                if len(samples) >= _MAX_SAMPLES:
                    samples.clear()
                samples[row.request_id, first_step] = step
                return step
    return None


def _kept(timeline: Timeline, name: str) -> dict[Hashable, object]:
    return remembered(timeline).kept(name)
