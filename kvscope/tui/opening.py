"""Where a recording opens when nobody names a step."""

from __future__ import annotations

from kvscope import events as ev
from kvscope.replay.timeline import Timeline


def opening_step(timeline: Timeline) -> int | None:
    """Returns the first step of a run that is over, to be watched from its beginning; None: its end, to be followed.

    A run that still goes on, that failed, or that ended with requests in its queues is looked at for what stands there.
    """
    if timeline.is_growing or timeline.last_step < 0:
        return None
    moment = timeline.at(timeline.last_step)
    failed = any(isinstance(event, ev.StepFailed) for event in moment.events)
    return None if failed or moment.state.waiting or moment.state.running else timeline.first_step
