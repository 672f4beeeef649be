"""Recordings beside each other in time: the step that an engine was in at a moment of another one's clock.

A step's stamp counts from its engine's start; the wall clock at that start makes the stamps of several engines
comparable, as well as the clocks of their machines agree. Scripted runs have no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kvscope import events as ev
from kvscope.replay.timeline import Timeline


def step_time_ns(timeline: Timeline, step: int) -> int:
    """Returns when a step began, since the engine's start; 0 without a clock.

    A step that failed before it was scheduled has no stamp: it has that of the step before.
    """
    for begun in range(step, max(step - 2, timeline.first_step - 1), -1):
        for _, events in timeline.select_events((ev.StepStarted,), begun, begun):
            for event in events:
                if isinstance(event, ev.StepStarted) and event.time_ns:
                    return event.time_ns
    return 0


def step_begun_by(timeline: Timeline, time_ns: int) -> int:
    """Returns the last step that began within so long of the engine's start, the first one where none had."""
    low, high = timeline.first_step, timeline.last_step
    while low < high:
        middle = (low + high + 1) // 2
        if step_time_ns(timeline, middle) <= time_ns:
            low = middle
        else:
            high = middle - 1
    return low


def started_ns(timeline: Timeline) -> int | None:
    """Returns the wall clock at the engine's start, since 1970; None where the recording does not say."""
    text = "" if timeline.config is None else timeline.config.started_at
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000) * 1_000_000
    except (ValueError, OverflowError):
        return None


def wall_span_ns(timeline: Timeline) -> tuple[int, int] | None:
    """Returns the wall clock at the beginning of the first and the last step; None without a clock or a step."""
    start = started_ns(timeline)
    if start is None or timeline.last_step < 0:
        return None
    last = step_time_ns(timeline, timeline.last_step)
    return (start + step_time_ns(timeline, timeline.first_step), start + last) if last else None


def ran_together(timelines: Sequence[Timeline]) -> bool:
    """Tells whether the engines ran at the same time, each with another one: parts of one system, not variants.

    A run that was simulated from another one's recording has that one's start to the millisecond: it is a variant.
    """
    starts = [started_ns(timeline) for timeline in timelines]
    if len(set(starts)) < len(starts):
        return False
    spans = [wall_span_ns(timeline) for timeline in timelines]
    known = sorted(span for span in spans if span is not None)
    if len(known) < len(spans) or len(known) < 2:
        return False
    end = known[0][1]
    for begin, next_end in known[1:]:
        if begin > end:
            return False
        end = max(end, next_end)
    return True
