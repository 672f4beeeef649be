"""The events around the step that is shown: a stretch of lines that grows at both ends as far as somebody looks.

What lies further off is read beside the screen, a page at a time; lines far from where one looks are let go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvscope.analysis.event_log import EventFilter, LoggedEvent, logged, read_log
from kvscope.replay.timeline import Moment, Timeline
from kvscope.tui.desk import Asker, Question, WatchedTimeline

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

PAGE_LINES = 200
MAX_LINES = 4_000

MARGIN = 2
"""Lines that stay between the chosen one and an edge of the list."""

NEAR_STEPS = 64
"""Steps that a growing recording may be ahead of the lines and still is read on at once."""


@dataclass(frozen=True, slots=True)
class Page:
    """What was read at one end: its lines in order, and the steps that they are all the listed events of."""

    lines: list[LoggedEvent]
    begin: int
    end: int


class EventLog:
    """The lines, the steps that they cover without a gap, and the line that is chosen."""

    def __init__(self, app: KvscopeApp, chosen: EventFilter, changed: Callable[[], None]) -> None:
        """`changed` is called when there is something else to show."""
        self._app = app
        self._changed = changed
        self._asker: Asker[Page] = Asker(app, self._answered)
        self._wanted: Hashable = None
        """What was asked for last, as long as its answer is of use."""
        self._at: tuple[Timeline, int, int | None] | None = None
        """Where the screen stood when the lines were last brought there."""
        self.chosen = chosen
        self.lines: list[LoggedEvent] = []
        self.begin = self.end = 0
        self.current = -1
        """The chosen line, -1 while there is none."""
        self.first = 0
        """The line at the top of the list; below zero as long as those before it are not read."""
        self.is_gone_to = False
        """The screen stands elsewhere since the list was drawn last."""
        self._kept: tuple[int, int] | None = None
        """The line to choose when other events are listed."""
        self._is_placed = False
        """The chosen line is where the screen stands, or a key has chosen it: else it is the best that is known."""
        self.version = 0

    @property
    def error(self) -> str:
        return self._asker.error

    @property
    def is_reading(self) -> bool:
        return self._asker.is_waiting and self._asker.value_key != self._asker.key

    @property
    def read_step(self) -> int | None:
        """How far the reading under way is."""
        return None if self._asker.watch is None else self._asker.watch.step

    @property
    def line(self) -> LoggedEvent | None:
        """The chosen line."""
        return self.lines[self.current] if 0 <= self.current < len(self.lines) else None

    def filter_by(self, chosen: EventFilter) -> None:
        """Lists other events, around the chosen one."""
        if chosen != self.chosen:
            self._kept = None if self.line is None else self.line.place
            self.chosen = chosen
            self._at = None
            self.version += 1

    def follow(self, timeline: Timeline, whole: Moment, number: int | None) -> None:
        """Brings the lines to where the screen stands: the event, or the beginning of the step."""
        at = (timeline, whole.step, number)
        if self._at == at:
            return
        is_other = self._at is None or self._at[0] is not timeline
        self._at = at
        if is_other or not self.begin <= whole.step <= self.end + NEAR_STEPS:
            self._begin_at(whole)
        elif whole.step > self.end:
            found = read_log(timeline, self.chosen, self.end + 1, whole.step)
            self._append(Page([line for line in found if isinstance(line, LoggedEvent)], self.end + 1, whole.step))
        self._choose(self._kept if is_other and self._kept is not None else (whole.step, number or 1))
        self._kept = None
        self.version += 1

    def _begin_at(self, whole: Moment) -> None:
        """Begins anew with the lines of one step: the rest is read when somebody looks for it."""
        self._asker.leave()
        self._wanted = None
        self.lines = logged(whole.step, whole.events, self.chosen)
        self.begin = self.end = whole.step
        self.current = -1

    def _choose(self, place: tuple[int, int]) -> None:
        """Chooses the event, else the next one that is listed, else the last."""
        index = bisect_left(self.lines, place, key=lambda line: line.place)
        self.current = min(index, len(self.lines) - 1)
        self._is_placed = index < len(self.lines)
        self.is_gone_to = True

    def walk(self, offset: int) -> None:
        """Chooses another line; `g` and `G` go to the ends of what was read, and there on."""
        self.choose(min(max(self.current + offset, 0), len(self.lines) - 1))

    def choose(self, index: int) -> None:
        """Chooses a line."""
        if 0 <= index < len(self.lines):
            self.current, self._is_placed = index, True
            self.version += 1

    # Reading on

    def shown(self, timeline: Timeline, height: int) -> range:
        """Returns which lines a list of this height shows, the chosen one among them; what lacks for it is read."""
        if self.is_gone_to:
            self.first, self.is_gone_to = self.current - height // 4, False
        margin = min(MARGIN, (height - 1) // 2)
        self.first = max(min(self.first, self.current - margin), self.current + margin + 1 - height)
        self._want(timeline, height)
        first = max(min(self.first, len(self.lines) - height), 0)
        return range(first, min(first + height, len(self.lines)))

    def _want(self, timeline: Timeline, height: int) -> None:
        """Reads on at an end that is less than a height from what is shown."""
        if self.is_reading or self.error:
            return
        if len(self.lines) - self.first - height < height and self.end < timeline.last_step:
            self._ask(timeline, self.end + 1, timeline.last_step, is_backwards=False)
        elif self.first < height and self.begin > timeline.first_step:
            self._ask(timeline, timeline.first_step, self.begin - 1, is_backwards=True)

    def _ask(self, timeline: Timeline, first_step: int, last_step: int, *, is_backwards: bool) -> None:
        key = self._wanted = (timeline.path, self.chosen, first_step, last_step, is_backwards)
        self._asker.ask(key, _page(self.chosen, first_step, last_step, is_backwards=is_backwards))

    def _answered(self) -> None:
        page = self._asker.value
        if page is not None and self._wanted is not None and self._asker.value_key == self._wanted:
            self._wanted = None
            if page.begin == self.end + 1:
                self._append(page)
            elif page.end == self.begin - 1:
                self._put_before(page)
        self.version += 1
        self._changed()

    def _append(self, page: Page) -> None:
        self.lines += page.lines
        self.end = page.end
        num_over = len(self.lines) - MAX_LINES
        if 0 < num_over < self.current:
            step = self.lines[num_over].step
            num_over = bisect_left(self.lines, (step + 1, 0), key=lambda line: line.place)
            del self.lines[:num_over]
            self.begin, self.current, self.first = step + 1, max(self.current - num_over, 0), self.first - num_over
        if not self._is_placed and self._at is not None:
            self._choose((self._at[1], self._at[2] or 1))

    def _put_before(self, page: Page) -> None:
        self.lines[:0] = page.lines
        self.begin = page.begin
        self.current, self.first = self.current + len(page.lines), self.first + len(page.lines)
        num_over = len(self.lines) - MAX_LINES
        if num_over > 0 and self.current < MAX_LINES:
            step = self.lines[MAX_LINES].step
            del self.lines[bisect_left(self.lines, (step, 0), key=lambda line: line.place) :]
            self.end, self.current = step - 1, min(self.current, len(self.lines) - 1)

    def leave(self) -> None:
        """Ends the reading under way."""
        self._asker.leave()


def _page(chosen: EventFilter, first_step: int, last_step: int, *, is_backwards: bool) -> Question[Page]:
    def read(watch: WatchedTimeline) -> Page:
        lines: list[LoggedEvent] = []
        begin, end = first_step, last_step
        for piece in read_log(watch, chosen, first_step, last_step, is_backwards=is_backwards):
            if isinstance(piece, LoggedEvent):
                lines.append(piece)
                continue
            watch.step = piece.step
            if len(lines) >= PAGE_LINES:
                begin, end = (piece.step, last_step) if is_backwards else (first_step, piece.step)
                break
        return Page(lines[::-1] if is_backwards else lines, begin, end)

    return read
