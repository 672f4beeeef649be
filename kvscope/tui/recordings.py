"""Several recordings in one screen: which one is shown, and which step of another stands for the same moment.

Each keeps its own selection, marks and places to come back to. By clock, the other one shows the step that its engine
was in at that moment; by step, the step of the same number, as suits two variants of one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from textual.app import SystemCommand

from kvscope.analysis.clock import ran_together, started_ns, step_begun_by, step_time_ns
from kvscope.analysis.text import visible
from kvscope.replay.timeline import Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.request import RequestScreen
from kvscope.tui.screens.statistics import StatisticsScreen
from kvscope.tui.screens.why import WhyScreen

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

Alignment = Literal["clock", "step"]


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment that was switched at: who comes back without having moved is at the same step as before."""

    recording: int
    step: int
    """Where one arrived."""
    alignment: Alignment
    value: int
    """The moment itself: the wall clock in ns, or a number of a step."""


class Recordings:
    """The recordings that are open, and the way from one to the other."""

    def __init__(self, app: KvscopeApp, timelines: Sequence[Timeline], alignment: Alignment | None) -> None:
        """`alignment` None: by clock where the engines ran at the same time, else by step."""
        self._app = app
        self.all = list(timelines)
        self.current = 0
        if alignment is None:
            alignment = "clock" if len(self.all) > 1 and ran_together(self.all) else "step"
        self.alignment: Alignment = alignment
        self._kept: dict[int, dict[str, object]] = {}
        """Of those that are not shown now, how they were left."""
        self._instant: Instant | None = None

    @property
    def _model(self) -> ScreenModel:
        return self._app.model

    @property
    def are_several(self) -> bool:
        return len(self.all) > 1

    @property
    def label(self) -> str:
        """Returns which of how many is shown, "" where there is one alone."""
        return f"{self.current + 1} of {len(self.all)} by {self.alignment}" if self.are_several else ""

    def name(self, index: int) -> str:
        """Returns the name of a recording's file, with its folder where two have the same name."""
        path = self.all[index].path
        is_only_one = sum(other.path.name == path.name for other in self.all) == 1
        return visible(path.name if is_only_one else str(path))

    def commands(self) -> Iterator[SystemCommand]:
        """Yields a palette entry for each recording."""
        for index in range(len(self.all) if self.are_several else 0):
            title = f"Recording {index + 1}: {self.name(index)}"
            yield SystemCommand(title, "shows it at the same moment", partial(self.show, index))

    def begin(self, timeline: Timeline) -> None:
        """Takes up one more recording and shows it: the one that a new engine writes."""
        if not self.all:
            self.all.append(timeline)
            self._model.open(timeline)
            return
        self._leave_place()
        self._app.finding.clear()
        self.all.append(timeline)
        self._exchange(len(self.all) - 1)

    def show_engine(self) -> None:
        """Shows the recording of the engine that can be talked to, at its end."""
        status = self._model.engine_status
        if status is None or self._model.status is not None:
            return
        for index, timeline in enumerate(self.all):
            if timeline.path == Path(status.recording):
                timeline.refresh()
                self.show(index, step=timeline.last_step)

    def close(self) -> None:
        """Closes those that are not shown; the shown one is the model's."""
        for timeline in self.all:
            if timeline is not self._model.timeline:
                timeline.close()

    # From one to another

    def go_on(self, direction: int) -> None:
        """Shows the next recording, or the one before, at the same moment."""
        if not self.are_several:
            self._app.say("one recording is open: kvscope replay A B opens several")
        else:
            self.show((self.current + direction) % len(self.all))

    def toggle_alignment(self) -> None:
        """Aligns by step instead of by clock, or the other way round."""
        if not self.are_several:
            self._app.say("one recording is open: there is nothing to align it with")
            return
        if self.alignment == "step" and not all(_has_clock(timeline) for timeline in self.all):
            self._app.say("a recording here has no clock: they are aligned by step")
            return
        self.alignment = "step" if self.alignment == "clock" else "clock"
        what = "the same moment of the clock" if self.alignment == "clock" else "the step of the same number"
        self._app.say(f"another recording is shown at {what}")
        self._model.version += 1
        self._app.show_soon()

    def show(self, index: int, *, step: int | None = None, request_id: str | None = None) -> None:
        """Shows a recording at a step, or else at the moment that is shown now; the place stays of the same kind."""
        model = self._model
        if index == self.current:
            if step is not None:
                self._app.navigation.remember()
                self._app.navigation.move_to(step)
            model.select(request_id)
            self._app.show_soon()
            return
        place, is_first_visit = type(self._app.screen), index not in self._kept
        is_at_end = model.is_growing and model.is_following
        value = self._moment()
        selected_id = model.selected_id
        self._leave_place()
        self._exchange(index)
        if step is not None:
            self._app.navigation.remember()
            model.move_to(step)
        elif is_at_end and model.is_growing:
            model.move_to(model.last_step)
        elif value is not None:
            model.move_to(self._step_at(value))
            self._instant = Instant(index, model.wanted_step, self.alignment, value)
        model.load()
        self._select(request_id or (selected_id if is_first_visit else None))
        self._app.finding.search_again()
        self._reopen(place)
        self._app.show_soon()

    def _moment(self) -> int | None:
        """Returns the moment that is shown: the wall clock in ns, or the step's number."""
        model = self._model
        if model.timeline is None or model.wanted_step < 0:
            return None
        instant = self._instant
        if instant is not None and (instant.recording, instant.step, instant.alignment) == (
            self.current,
            model.wanted_step,
            self.alignment,
        ):
            return instant.value
        if self.alignment == "step":
            return model.wanted_step
        start = started_ns(model.timeline)
        return None if start is None else start + step_time_ns(model.timeline, model.wanted_step)

    def _step_at(self, value: int) -> int:
        """Returns the step of the recording now shown that stands for a moment; says where it lies outside."""
        model, timeline = self._model, self._model.timeline
        assert timeline is not None
        start = started_ns(timeline)
        if self.alignment == "step" or start is None:
            if value > model.last_step:
                self._app.say(f"{self.name(self.current)} ends with step {model.last_step}")
            return value
        step = step_begun_by(timeline, value - start)
        begun_ns = start + step_time_ns(timeline, step)
        if begun_ns > value:
            early = (begun_ns - value) / 1e9
            self._app.say(f"{self.name(self.current)} begins {early:.1f} s later: this is its first step")
        elif step == model.last_step and not model.is_growing and (late := (value - begun_ns) / 1e9) >= 0.05:
            self._app.say(f"{self.name(self.current)} began its last step {late:.1f} s earlier")
        return step

    def _exchange(self, index: int) -> None:
        model = self._model
        self._kept[self.current] = model.exchange(self._kept.pop(index, {}))
        self.current = index
        if model.timeline is None:
            model.open(self.all[index])
        model.poll()
        model.renew()

    def _select(self, request_id: str | None) -> None:
        """Selects a request where this recording has it by the step that is shown."""
        moment = self._model.moment
        if request_id is not None and moment is not None and request_id in moment.state.requests:
            self._model.select(request_id)

    # The place

    def _leave_place(self) -> None:
        """Ends what is under way for the recording, and goes up to the main screen."""
        app = self._app
        app.navigation.leave()
        app.breakpoints.leave()
        app.desk.leave()
        if app.model.is_playing:
            app.engine.stop_playing()
        while not isinstance(app.screen, MainScreen):
            app.pop_screen()

    def _reopen(self, place: type[object]) -> None:
        app = self._app
        if place is RequestScreen and app.model.selected_id is not None:
            app.places.open_request(app.model.selected_id)
        elif place is WhyScreen:
            app.places.open_why()
        elif place is StatisticsScreen:
            app.places.open_statistics()


def _has_clock(timeline: Timeline) -> bool:
    return started_ns(timeline) is not None and bool(step_time_ns(timeline, timeline.last_step))
