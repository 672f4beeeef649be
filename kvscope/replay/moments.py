"""A second reader of a recording's states: what it reads leaves the moment that a screen shows as it is."""

from __future__ import annotations

from kvscope.replay.cursor import StateCursor, StateSource
from kvscope.replay.timeline import Moment


class OwnMoments:
    """Implements `Moments` with a state of its own."""

    def __init__(self, source: StateSource) -> None:
        self._cursor = StateCursor(source)

    def at(self, step: int) -> Moment:
        """Returns the step and the state after it, valid until the next call. Raises `RecordingError` on damage."""
        state, events = self._cursor.at(step)
        return Moment(step, state, events)
