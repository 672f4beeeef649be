"""Collects what happened in a step, in order, for whoever records it."""

from __future__ import annotations

from kvscope.events import Event


class StepEvents:
    """The events since they were last taken. While nobody records, none is built: callers ask `is_recording` first."""

    __slots__ = ("_events", "append", "is_recording")

    def __init__(self, *, is_recording: bool) -> None:
        self.is_recording = is_recording
        self._events: list[Event] = []
        self.append = self._events.append

    def take(self) -> list[Event]:
        """Returns the events so far and starts anew."""
        events, self._events = self._events, []
        self.append = self._events.append
        return events
