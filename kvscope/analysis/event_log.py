"""The events of a recording one after another, of some kinds or one request, in both directions from any step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from kvscope import events as ev
from kvscope.analysis.event_subjects import names_request
from kvscope.analysis.searched import Searched
from kvscope.replay.timeline import Timeline

KINDS: tuple[type[ev.Event], ...] = get_args(ev.Event)

BATCH_KINDS: frozenset[type[ev.Event]] = frozenset({ev.TokensScheduled, ev.TokensSampled})
"""Kinds that name every request of a step: about one request they say little, and there is one in each of its steps."""

ROUTINE_KINDS: frozenset[type[ev.Event]] = BATCH_KINDS | {
    ev.StepStarted,
    ev.AdmissionEnded,
    ev.StepFinished,
    ev.TokenTextRecorded,
}
"""Kinds that a step has in which nothing was decided: the others are decisions and what came of them."""

_STRETCH_OF_ALL = 8
_STRETCH = 400
"""Steps that are read at once: some milliseconds of work."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are listed."""

    kinds: frozenset[type[ev.Event]] = frozenset(KINDS)
    request_id: str | None = None

    @property
    def is_all(self) -> bool:
        """Nothing is left out."""
        return self.request_id is None and len(self.kinds) == len(KINDS)

    def accepts(self, event: ev.Event) -> bool:
        """True for an event that is listed. Of one request, events of a batch are listed where their kind was chosen
        among others, not where all kinds are."""
        if type(event) not in self.kinds:
            return False
        if self.request_id is None:
            return True
        if type(event) in BATCH_KINDS and len(self.kinds) == len(KINDS):
            return False
        return names_request(event, self.request_id)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event, and where it stands in its step: 1 is the first."""

    step: int
    number: int
    num_events: int
    event: ev.Event

    @property
    def place(self) -> tuple[int, int]:
        """Sorts events of a run: step, and number in it."""
        return self.step, self.number


def logged(step: int, events: Sequence[ev.Event], chosen: EventFilter) -> list[LoggedEvent]:
    """Returns the listed events of one step."""
    return [
        LoggedEvent(step, number, len(events), event) for number, event in enumerate(events, 1) if chosen.accepts(event)
    ]


def read_log(
    timeline: Timeline, chosen: EventFilter, first_step: int, last_step: int, *, is_backwards: bool = False
) -> Iterator[LoggedEvent | Searched]:
    """Yields the listed events of the steps in order, or from the last one back, and after each stretch of steps the
    one up to which everything was told."""
    size = _STRETCH_OF_ALL if chosen.is_all else _STRETCH
    if is_backwards:
        for end in range(last_step, first_step - 1, -size):
            begin = max(end - size + 1, first_step)
            for step, events in reversed(list(_steps(timeline, chosen, begin, end))):
                yield from reversed(logged(step, events, chosen))
            yield Searched(begin)
        return
    for begin in range(first_step, last_step + 1, size):
        end = min(begin + size - 1, last_step)
        for step, events in _steps(timeline, chosen, begin, end):
            yield from logged(step, events, chosen)
        yield Searched(end)


def _steps(
    timeline: Timeline, chosen: EventFilter, first_step: int, last_step: int
) -> Iterator[tuple[int, Sequence[ev.Event]]]:
    """Yields the steps that have listed events, whole: where an event stands in its step must be known."""
    if chosen.is_all:
        yield from timeline.events(first_step, last_step)
        return
    if chosen.request_id is not None and (len(chosen.kinds) == len(KINDS) or not chosen.kinds & BATCH_KINDS):
        found = timeline.request_events(chosen.request_id, first_step, last_step)
    else:
        found = timeline.kind_events(chosen.kinds, first_step, last_step)
    for step in dict.fromkeys(step for step, event in found if chosen.accepts(event)):
        yield from timeline.events(step, step)
