"""Finds what to mark on the timeline: the detectors read the recording in a thread, at leisure; notes are looked after.

The detectors rest while keys are pressed, and between two pieces of work, so that no key waits for them. A recording
that grows is read again when it has grown by a part of itself and some time after the last reading: all readings
together cost a small share of one core. One that is very long is not read unasked; where the statistics have read it,
theirs are shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope.analysis.detectors import find_all
from kvscope.analysis.finding import Finding
from kvscope.errors import KvscopeError
from kvscope.events import Event
from kvscope.replay.bookmarks import Bookmarks, NotesError, sidecar_of
from kvscope.replay.timeline import Timeline
from kvscope.tui.desk import OpenTimeline, QuestionLeft, WatchedTimeline
from kvscope.tui.view.marks import Marks
from kvscope.tui.view.statistics import worst_findings

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

MAX_STEPS = 20_000
"""Read unasked: about ten seconds of work, a minute with its rests, and some megabytes."""

WORK_SECONDS, REST_SECONDS = 0.005, 0.02
"""Of the detectors, in turns: at most a fifth of one core while they read."""

READ_STEPS = 16
"""Read at once: a storage reads many more together, and would work for longer than that before it can rest."""

QUIET_SECONDS = 0.3
"""They wait until no key was pressed for so long."""

GROWTH = 1.1
"""A recording that goes on is read again when it is so many times as long as before; once it has ended, in any case."""

NUM_RESTS, MIN_PAUSE_SECONDS = 20, 3.0
"""And not before so many times as long have passed as the last reading took."""

NOTES_SECONDS = 1.0
"""How often the notes are looked after: another screen may have set one."""

Found = tuple[list[Finding], int]
"""Those that are told, and how many are not."""


class PatientTimeline(WatchedTimeline):
    """A watched timeline whose reader rests in between, and while somebody presses keys."""

    def __init__(
        self, timeline: Timeline, is_disturbed: Callable[[], bool], is_awaited: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_awaited`: somebody looks on. The reader then rests only while keys are pressed."""
        super().__init__(timeline)
        self._is_awaited = is_awaited
        self._is_disturbed = is_disturbed
        self._worked_since = time.monotonic()

    def check(self) -> None:
        super().check()
        if time.monotonic() - self._worked_since < WORK_SECONDS and not self._is_disturbed():
            return
        if not self._is_awaited():
            time.sleep(REST_SECONDS)
        while self._is_disturbed() and not self.is_left:
            time.sleep(REST_SECONDS)
        super().check()
        self._worked_since = time.monotonic()

    def events(self, first_step: int, last_step: int) -> Iterator[tuple[int, Sequence[Event]]]:
        for first, last in _some_steps(first_step, min(last_step, self.last_step)):
            yield from super().events(first, last)

    def select_events(
        self, kinds: Collection[type[Event]], first_step: int, last_step: int
    ) -> Iterator[tuple[int, Sequence[Event]]]:
        for first, last in _some_steps(first_step, min(last_step, self.last_step)):
            yield from super().select_events(kinds, first, last)


def _some_steps(first_step: int, last_step: int) -> Iterator[tuple[int, int]]:
    """Yields first and last steps of parts of a range."""
    for first in range(first_step, last_step + 1, READ_STEPS):
        yield first, min(first + READ_STEPS - 1, last_step)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the detectors found in a recording up to a step."""

    last_step: int
    found: Found


class Markers:
    """Keeps the marks of the recording that is shown up to date."""

    def __init__(self, app: KvscopeApp, open_timeline: OpenTimeline | None) -> None:
        """Without `open_timeline` (a recording in memory) nothing is read."""
        self._app = app
        self._open_timeline = open_timeline
        self._readings: dict[Path, Reading] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._opened: Timeline | None = None
        self._watch: PatientTimeline | None = None
        self._is_closed = False
        self._under_way: Path | None = None
        self._began_at = self._next_at = 0.0
        self._last_key_at = float("-inf")
        self._notes_at = float("-inf")
        self._notes_seen: tuple[Path, int] | None = None

    # Findings

    def hear_key(self) -> None:
        """Takes notice of a key: the detectors wait."""
        self._last_key_at = time.monotonic()

    @property
    def seconds_since_key(self) -> float:
        """How long no key has been heard."""
        return time.monotonic() - self._last_key_at

    def look(self) -> None:
        """Begins what is due; to be called again and again."""
        timeline = self._app.model.timeline
        if timeline is None or timeline.last_step < 0 or not timeline.path.is_file():
            return
        self._look_after_notes(timeline.path)
        if self._under_way is not None and self._under_way != timeline.path:
            self.leave()
        if self._is_due(timeline):
            self._begin(timeline)

    def known(self, path: Path, last_step: int) -> Found | None:
        """Returns what was found in a recording up to this very step, None where that is not known."""
        reading = self._readings.get(path)
        return reading.found if reading is not None and reading.last_step == last_step else None

    def take(self, path: Path, last_step: int, found: Found) -> None:
        """Takes what somebody else has read."""
        known = self._readings.get(path)
        if known is None or known.last_step < last_step:
            self._readings[path] = Reading(last_step, found)
            self._show()

    @property
    def words(self) -> str:
        """Why not all findings are known, "" where they are."""
        timeline = self._app.model.timeline
        if timeline is None or self.known(timeline.path, timeline.last_step) is not None:
            return ""
        num_steps = timeline.last_step - timeline.first_step + 1
        if num_steps > MAX_STEPS and timeline.path not in self._readings:
            key = self._app.keys.shown("t")
            return f"the detectors read {num_steps:,} steps only where they are asked to: {key}"
        reading = self._readings.get(timeline.path)
        if self._watch is None and reading is not None and num_steps > MAX_STEPS and not timeline.is_growing:
            return f"the detectors have read up to step {reading.last_step:,} of {timeline.last_step:,}"
        if self._watch is not None:
            return f"the detectors are at step {self._watch.step:,} of {self._watch.last_step:,}"
        return ""

    def _is_due(self, timeline: Timeline) -> bool:
        now = time.monotonic()
        num_steps = timeline.last_step - timeline.first_step + 1
        if self._open_timeline is None or self._under_way is not None or num_steps > MAX_STEPS:
            return False
        reading = self._readings.get(timeline.path)
        if reading is None:
            return True
        has_grown = num_steps >= GROWTH * (reading.last_step - timeline.first_step + 1)
        return now >= self._next_at and (
            has_grown or (timeline.last_step > reading.last_step and not timeline.is_growing)
        )

    def _begin(self, timeline: Timeline) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="detectors")
        self._under_way, self._began_at = timeline.path, time.monotonic()
        future = self._thread.submit(self._read, timeline.path)
        future.add_done_callback(lambda done: self._app.call_later(self._hear, done))

    def _read(self, path: Path) -> Reading:
        """Runs in the thread."""
        assert self._open_timeline is not None
        if self._opened is None or self._opened.path != path:
            if self._opened is not None:
                self._opened.close()
            self._opened = self._open_timeline(path)
        self._opened.refresh()
        watch = self._watch = PatientTimeline(self._opened, self.is_disturbed)
        if self._is_closed:
            raise QuestionLeft
        return Reading(watch.last_step, worst_findings(find_all(watch)))

    def is_disturbed(self) -> bool:
        """Keys are pressed, or a replay plays: who reads at leisure waits."""
        return self._app.model.is_playing or self.seconds_since_key < QUIET_SECONDS

    def _hear(self, done: Future[Reading]) -> None:
        path, self._under_way, self._watch = self._under_way, None, None
        if self._is_closed:
            return
        took = time.monotonic() - self._began_at
        self._next_at = time.monotonic() + max(NUM_RESTS * took, MIN_PAUSE_SECONDS)
        try:
            reading = done.result()
        except QuestionLeft:
            return
        except KvscopeError:  # what cannot be read is said where it is looked at
            reading = Reading(-1, ([], 0))
        except Exception as error:  # nobody asked for this reading: the screen goes on without it
            self._app.say(f"the detectors failed: {type(error).__name__}: {error}", is_error=True)
            reading = Reading(-1, ([], 0))
        if path is not None:
            self._readings[path] = reading
            self._show()

    def leave(self) -> None:
        """Ends a reading at its next look into the recording."""
        if self._watch is not None:
            self._watch.is_left = True

    def close(self) -> None:
        """Ends everything; called when the screen is left."""
        self._is_closed = True
        self.leave()
        if self._thread is not None:
            self._thread.submit(self._close_opened)
            self._thread.shutdown()  # it ends at its next look; a recording that is still open would not be one file

    def _close_opened(self) -> None:
        if self._opened is not None:
            self._opened.close()

    # Notes

    def _look_after_notes(self, path: Path) -> None:
        now = time.monotonic()
        is_other = self._notes_seen is None or self._notes_seen[0] != path
        if not is_other and now - self._notes_at < NOTES_SECONDS:
            return
        self._notes_at = now
        try:
            changed_ns = sidecar_of(path).stat().st_mtime_ns
        except OSError:
            changed_ns = 0
        if self._notes_seen != (path, changed_ns):
            self._notes_seen = path, changed_ns
            self._show()

    def notes_changed(self) -> None:
        """The notes were changed here: they are looked after at once."""
        self._notes_seen = None
        self.look()

    def _show(self) -> None:
        """Hands the marks of the recording that is shown to the model."""
        model = self._app.model
        if model.timeline is None:
            return
        reading = self._readings.get(model.timeline.path)
        try:
            bookmarks = Bookmarks(model.timeline.path).read()
        except NotesError:  # said where they are opened
            bookmarks = []
        marks = Marks(() if reading is None else tuple(reading.found[0]), tuple(bookmarks))
        if marks != model.marks:
            model.marks = marks
            model.version += 1
            self._app.show_soon()
