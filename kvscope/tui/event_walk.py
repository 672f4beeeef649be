"""Where the cursor stands inside a step: behind which of its events. Knows no screen."""

from __future__ import annotations

from kvscope.events import Event
from kvscope.replay.inside_step import InsideStep, inside
from kvscope.replay.timeline import Moment, Moments, Timeline

LAST = -1
"""As the wanted event: the last one of the step."""


class EventWalk:
    """The way through the events of a step, and on into the steps before and behind it."""

    def __init__(self) -> None:
        self._timeline: Timeline | None = None
        self._moments: Moments | None = None
        self._inside: InsideStep | None = None
        self.whole: Moment | None = None
        """The step that is shown, with all its events."""
        self.wanted: int | None = None
        """The event behind which the state is wanted, 1 is the first; None for the whole step."""
        self.number: int | None = None
        """The one that is shown."""

    @property
    def num_events(self) -> int:
        return 0 if self.whole is None else len(self.whole.events)

    @property
    def event(self) -> Event | None:
        """The event behind which the shown state stands; None for the whole step."""
        return None if self.number is None or self.whole is None else self.whole.events[self.number - 1]

    def leave(self) -> None:
        """Wants the whole step."""
        self.wanted = None

    def move(self, offset: int) -> int:
        """Wants another event; returns in which step, as an offset from the one that is shown.

        From the whole step the way begins at its first event, backwards at its last. An end of a step is never jumped
        over: from there it goes on to the next event, in the next step.
        """
        number, last = self.number, self.num_events
        if number is None:
            self.wanted = 1 if offset > 0 else LAST
        elif offset > 0 and number == last:
            self.wanted = 1
            return 1
        elif offset < 0 and number == 1:
            self.wanted = LAST
            return -1
        else:
            self.wanted = min(max(number + offset, 1), last)
        return 0

    def enter(self, timeline: Timeline, whole: Moment) -> Moment:
        """Returns what is to be shown of a step: all of it, or its state behind the wanted event.

        Raises `RecordingError` where the step before it cannot be read, or an event contradicts the state.
        """
        number = self.wanted
        if number is not None:
            number = len(whole.events) if number == LAST else min(number, len(whole.events))
        moment = self._behind(timeline, whole, number) if number else whole
        self.whole, self.wanted, self.number = whole, number or None, number or None
        return moment

    def renew(self, timeline: Timeline, whole: Moment) -> Moment:
        """Takes the shown step anew; what is wanted stays so."""
        wanted, self.wanted = self.wanted, self.number
        moment = self.enter(timeline, whole)
        self.wanted = wanted
        return moment

    def _behind(self, timeline: Timeline, whole: Moment, number: int) -> Moment:
        if self._moments is None or self._timeline is not timeline:
            self._timeline, self._moments, self._inside = timeline, timeline.moments(), None
        if self._inside is None or self._inside.step != whole.step:
            self._inside = None
            self._inside = inside(self._moments, whole, timeline.first_step)
        return self._inside.after(number)
