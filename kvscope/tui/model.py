"""What the screen looks at: a timeline, a step in it, one selected request and block. No widget, no drawing.

Live and replay are one thing: a live timeline grows, and the cursor may follow its end. The model never waits for the
engine; commands go through `EngineControl` elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvscope import events as ev
from kvscope.analysis.pool_order import PoolOrder
from kvscope.analysis.queue_order import QueueOrder, queue_places
from kvscope.control import EngineControl, EngineStatus
from kvscope.errors import KvscopeError
from kvscope.replay.timeline import Moment, Timeline
from kvscope.tui.event_walk import EventWalk
from kvscope.tui.time_page import TimePage
from kvscope.tui.view.glyphs import UNICODE, Glyphs
from kvscope.tui.view.marks import NO_MARKS

SHARED = frozenset(
    {
        "control",
        "glyphs",
        "is_playing",
        "pool_order",
        "queue_order",
        "steps_per_second",
        "steps_per_column",
        "version",
        "num_news",
    }
)
"""What is the screen's own; all else belongs to the recording that is shown: cursor, selection, marks, places."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is selected: what `esc` brings back."""

    request_id: str | None
    block_id: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where one was: what `u` brings back."""

    step: int
    selection: Selection
    event_number: int | None
    screen: str
    """The name of the place."""


class ScreenModel(TimePage):
    """The cursor, the selection and the page of the timeline."""

    def __init__(
        self, *, timeline: Timeline | None, control: EngineControl | None = None, glyphs: Glyphs = UNICODE
    ) -> None:
        super().__init__(timeline)
        self.control = control
        self.glyphs = glyphs
        self.walk = EventWalk()
        self.wanted_step = -1
        """Where the keys went; `moment` follows with `load`."""
        self.is_following = True
        self.is_playing = False
        self.steps_per_second = 8
        self.note: tuple[int, str] | None = None
        """What the header says of a step while it is looked at: why a replay stopped there."""
        self.block_id: int | None = None
        self.mark_step: int | None = None
        """Step A, with which another one is compared."""
        self.marks = NO_MARKS
        """Findings and bookmarks, as far as they are known."""
        self.pool_order: PoolOrder = "id"
        self.queue_order: QueueOrder = "queue"
        self._back: list[Place] = []
        self._forward: list[Place] = []

    # What is there

    @property
    def engine_status(self) -> EngineStatus | None:
        """The engine's condition, whatever is shown; None where there is no engine to talk to."""
        return None if self.control is None else self.control.status

    @property
    def status(self) -> EngineStatus | None:
        """The condition of the engine whose recording is shown; None where that is nobody's who can be talked to."""
        status = self.engine_status
        if status is None or self.timeline is None or not status.recording:
            return status
        return status if self.timeline.path == Path(status.recording) else None

    @property
    def config(self) -> ev.EngineConfigured | None:
        if self.moment is not None and self.moment.state.config is not None:
            return self.moment.state.config
        return None if self.timeline is None else self.timeline.config

    @property
    def is_growing(self) -> bool:
        return self.timeline is not None and self.timeline.is_growing

    # Time

    def open(self, timeline: Timeline, step: int | None = None) -> None:
        """Takes a timeline, at its end or at a step."""
        self.timeline = timeline
        self.walk.leave()
        self.window = None
        self._summaries = None
        self.is_following = step is None
        self.wanted_step = timeline.last_step if step is None else step
        self.version += 1

    def exchange(self, kept: dict[str, object]) -> dict[str, object]:
        """Takes up another recording where it was left (empty: anew), and returns what to keep of this one."""
        own = vars(self)
        left = {name: value for name, value in own.items() if name not in SHARED}
        fresh = {name: value for name, value in vars(ScreenModel(timeline=None)).items() if name not in SHARED}
        own.update(fresh | kept)
        self.version += 1
        return left

    def move_to(self, step: int) -> None:
        """Wants a whole step; beyond an end it is that end. At the end of a growing recording the cursor follows it."""
        if self.last_step < 0:
            return
        self.walk.leave()
        self.wanted_step = min(max(step, self.first_step), self.last_step)
        self.is_following = self.wanted_step == self.last_step

    def move_by(self, num_steps: int) -> None:
        self.move_to(self.wanted_step + num_steps)

    def move_by_events(self, offset: int) -> bool:
        """Wants the state behind another event, of this step or of the next; False where there is none."""
        self.load()
        if self.moment is None or not self.walk.num_events:
            return False
        before = self.walk.wanted
        step = self.step + self.walk.move(offset)
        if not self.first_step <= step <= self.last_step:
            self.walk.wanted = before
            return False
        self.wanted_step, self.is_following = step, False
        return True

    def move_to_event(self, step: int, number: int) -> None:
        """Wants the state behind an event of a step, 1 is the first."""
        self.move_to(step)
        self.walk.wanted, self.is_following = number, False

    def poll(self) -> bool:
        """Looks for new steps; True where something that is shown has changed."""
        if self.timeline is None or not self.timeline.is_growing:
            return False
        try:
            if not self.timeline.refresh():
                return False
        except KvscopeError as error:
            self.error = error.message
            return True
        if self.is_following and self.wanted_step != self.last_step:
            self.wanted_step = self.last_step
            self.version += 1
        self.num_news += 1
        return True

    def load(self) -> None:
        """Reads what is wanted where it is not what is shown. An error leaves what was shown standing."""
        walk = self.walk
        is_other_step = self.wanted_step != self.step
        if self.timeline is None or self.wanted_step < 0 or (not is_other_step and walk.wanted == walk.number):
            return
        try:
            whole = self.timeline.at(self.wanted_step) if is_other_step or walk.whole is None else walk.whole
        except KvscopeError as error:
            self.error = error.message
            self.wanted_step, walk.wanted = self.step, walk.number
            return
        try:
            self.moment, self.error = walk.enter(self.timeline, whole), ""
        except KvscopeError as error:
            walk.leave()
            self.moment, self.error = walk.enter(self.timeline, whole), error.message
        self.scheduled.add(whole.step, whole.events)
        self.version += 1
        if self.selected_id is None:
            self.select(self._first_choice(self.moment))

    def renew(self) -> None:
        """Takes the shown step anew, after somebody else has moved the timeline."""
        if self.timeline is not None and self.moment is not None:
            self.moment = self.walk.renew(self.timeline, self.timeline.at(self.moment.step))

    def mark(self, step: int | None) -> None:
        """Marks a step as A, or takes the mark away."""
        self.mark_step = step
        self.version += 1

    # Selection

    def select(self, request_id: str | None) -> None:
        """Selects a request; the block stays where it is one of its blocks, else its last one is chosen."""
        if request_id is None:
            return
        self.selected_id = request_id
        blocks = self.selected_blocks
        if self.block_id not in blocks:
            self.block_id = blocks[-1] if blocks else self.block_id
        self.version += 1

    def choose_block(self, block_id: int) -> None:
        if self.moment is not None and 0 <= block_id < len(self.moment.state.ref_cnts):
            self.block_id = block_id
            self.version += 1

    @property
    def selected_blocks(self) -> Sequence[int]:
        """The block table of the selected request, empty where it has none now."""
        if self.moment is None or self.selected_id is None:
            return ()
        request = self.moment.state.requests.get(self.selected_id)
        return () if request is None else request.block_ids

    @property
    def queue_ids(self) -> list[str]:
        """All requests of both queues, in the order in which the panel shows them."""
        if self.moment is None:
            return []
        state, (waiting, running) = self.moment.state, queue_places(self.moment, self.queue_order)
        return [*map(state.waiting.__getitem__, waiting), *map(state.running.__getitem__, running)]

    def select_by(self, num_rows: int) -> None:
        """Moves the selection along the queues; one that is in neither stands before them, or behind on the way up."""
        ids = self.queue_ids
        if not ids:
            return
        outside = -1 if num_rows > 0 else len(ids)
        place = ids.index(self.selected_id) if self.selected_id in ids else outside
        self.select(ids[min(max(place + num_rows, 0), len(ids) - 1)])

    @staticmethod
    def _first_choice(moment: Moment) -> str | None:
        """The victim of the step, else the head of the queue, else the newest runner, else the last one that ended."""
        for event in moment.events:
            if isinstance(event, ev.RequestPreempted):
                return event.request_id
        state = moment.state
        if state.waiting:
            return state.waiting[0]
        return next((ids[-1] for ids in (state.running, state.ended_ids) if ids), None)

    @property
    def selection(self) -> Selection:
        return Selection(self.selected_id, self.block_id)

    def bring_back(self, selection: Selection) -> None:
        """Selects what was selected before a jump; the step stays. Where that is all, there is nothing to undo."""
        self.selected_id, self.block_id = selection.request_id, selection.block_id
        self.version += 1
        last = self._back[-1] if self._back else None
        if last is not None and (last.step, last.selection) == (self.wanted_step, selection):
            self._back.pop()

    # Places

    def _place(self, screen: str) -> Place:
        return Place(self.wanted_step, self.selection, self.walk.wanted, screen)

    def remember(self, screen: str) -> None:
        """Keeps the present place, before a jump."""
        self._back.append(self._place(screen))
        self._forward.clear()

    def go_back(self, screen: str) -> str | None:
        """Goes to the place before the last jump, step and selection; returns its name, None where there is none."""
        return self._swap(self._back, self._forward, screen)

    def go_forward(self, screen: str) -> str | None:
        return self._swap(self._forward, self._back, screen)

    def _swap(self, source: list[Place], target: list[Place], screen: str) -> str | None:
        if not source:
            return None
        target.append(self._place(screen))
        place = source.pop()
        self.move_to(place.step)
        if place.event_number is not None:
            self.move_to_event(place.step, place.event_number)
        self.selected_id, self.block_id = place.selection.request_id, place.selection.block_id
        self.version += 1
        return place.screen
