"""Moving: through steps, to what can be typed, to the next event, to what was clicked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.worker import Worker

from kvscope.analysis.clock import step_begun_by, step_time_ns
from kvscope.analysis.text import visible
from kvscope.errors import KvscopeError
from kvscope.replay.timeline import Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.modals import EventKindsModal, GotoModal
from kvscope.tui.view.events import EventKind, EventTargets, next_event, next_event_of_request
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.goto import (
    Goto,
    GotoError,
    ToBlock,
    ToNumberedRequest,
    ToRequest,
    ToStep,
    ToTime,
    numbered,
    parse_goto,
)
from kvscope.tui.view.lines import Span, Target
from kvscope.tui.view.marks import next_mark

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

DEFAULT_PAGE = 100
"""Steps of a page where no timeline was shown yet."""


class Navigation:
    """The keys of time and of events, for every place."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app
        self.targets = EventTargets()
        self._search: Worker[None] | None = None

    @property
    def _model(self) -> ScreenModel:
        return self._app.model

    def move_by(self, num_steps: int) -> None:
        self._cancel_search()
        self._model.move_by(num_steps)
        self._app.show_soon()

    def move_by_page(self, direction: int) -> None:
        """Moves by as many steps as the timeline shows."""
        window = self._model.window
        self.move_by(direction * (DEFAULT_PAGE if window is None else window.end_step - window.first_step))

    def move_to(self, step: int) -> None:
        self._cancel_search()
        self._model.move_to(step)
        self._app.show_soon()

    def move_by_events(self, offset: int) -> None:
        """Walks through the events of the step, and on into the next."""
        self._cancel_search()
        if not self._model.move_by_events(offset):
            self._app.say(f"no event {'after' if offset > 0 else 'before'} this one")
        self._app.show_soon()

    def follow(self, target: Target) -> None:
        """Goes to a request, a block or a step, and remembers from where."""
        self._model.remember()
        match target.kind:
            case "request":
                self._model.select(target.key)
            case "block":
                self._model.choose_block(int(target.key))
            case _:
                self.move_to(int(target.key))
        self._app.show_soon()

    def zoom(self, *, is_finer: bool) -> None:
        if not self._model.zoom(is_finer=is_finer):
            self._app.say(f"the whole run is shown: {self._app.keys.shown('z')} goes back to single steps")
        self._app.show_soon()

    def swap_whole_run(self) -> None:
        """The whole run on one page of the timeline, and single steps again."""
        self._model.swap_whole_run()
        self._app.show_soon()

    def go_back(self) -> None:
        if self._model.go_back():
            self._app.show_soon()

    def go_forward(self) -> None:
        if self._model.go_forward():
            self._app.show_soon()

    # Typed

    def ask_goto(self) -> None:
        hint = f"steps {self._model.first_step} to {self._model.last_step}"
        self._app.push_screen(GotoModal(hint, self.go, is_ascii=self._app.is_ascii))

    def go(self, text: str) -> str | None:
        """Goes where the text says; returns what is wrong with it."""
        model = self._model
        if model.timeline is None or model.moment is None:
            return "there is no step to go to yet"
        try:
            own_id = text.strip()
            if not own_id.isdecimal() and model.timeline.request(own_id) is not None:
                destination: Goto = ToRequest(own_id)  # whatever else it could mean
            else:
                destination = parse_goto(
                    text,
                    step=model.step,
                    first_step=model.first_step,
                    last_step=model.last_step,
                    num_blocks=len(model.moment.state.ref_cnts),
                )
            model.remember()
            go_to(model, model.timeline, destination)
        except KvscopeError as error:
            return visible(error.message)
        if isinstance(destination, ToBlock):
            self._app.call_later(self._app.places.open_block, destination.block_id)
        self._app.show_soon()
        return None

    # Events

    def find_event(self, direction: int) -> None:
        """Goes to the next hit of a search, else to the next event of the chosen kinds.

        A long way to an event can be left with any key of time.
        """
        self._cancel_search()
        if self._app.finding.is_target:
            self._app.finding.go_on(direction)
            return
        self._search = self._app.run_worker(self._find(direction), group="search", exclusive=True)

    async def _find(self, direction: int) -> None:
        model, timeline = self._model, self._model.timeline
        if timeline is None:
            return
        found: int | None = None
        if self.targets.only_selected:
            if model.selected_id is not None:
                found = next_event_of_request(timeline, model.selected_id, model.wanted_step, direction)
        else:
            for found in next_event(timeline, model.wanted_step, direction, self.targets.kinds):  # noqa: B007
                await asyncio.sleep(0)
            marked = next_mark(model.marks, model.wanted_step, direction, self.targets.kinds)
            if marked is not None and (found is None or (marked - found) * direction < 0):
                found = marked
        if found is None:
            where = "after" if direction > 0 else "before"
            what = f"event of {model.selected_id}" if self.targets.only_selected else "event of the chosen kinds"
            other, beyond = ("N", "before") if direction > 0 else ("n", "after")
            look = f"{self._app.keys.shown(other)} looks {beyond} it, {self._app.keys.shown('e')} chooses kinds"
            if "finding" in self.targets.kinds and (why := self._app.markers.words):
                look = why
            self._app.say(f"no {what} {where} step {model.wanted_step}: {look}")
        else:
            model.move_to(found)
            self._app.show_soon()

    def leave(self) -> None:
        """Ends the way to an event that is under way."""
        self._cancel_search()

    def _cancel_search(self) -> None:
        if self._search is not None and not self._search.is_finished:
            self._search.cancel()
        self._search = None

    def choose_event_kinds(self) -> None:
        if self._app.finding.is_target:
            self._app.finding.clear()
        marks = event_marks(self._model.glyphs)
        self._app.push_screen(EventKindsModal(self.targets.kinds, marks, self.find_event, is_ascii=self._app.is_ascii))

    def toggle_event_filter(self) -> None:
        self.targets.only_selected = not self.targets.only_selected
        whose = f"events of {self._model.selected_id} only" if self.targets.only_selected else "events of all requests"
        self._app.say(f"{self._app.keys.shown('n')} and {self._app.keys.shown('N')} go to {whose}")


def event_marks(glyphs: Glyphs) -> dict[EventKind, Span]:
    """Returns the mark of each kind of event, as on the timeline."""
    return {
        "failed": Span(glyphs.mark_failed, "bad"),
        "preempted": Span(glyphs.mark_preempted, "preempted"),
        "stalled": Span(glyphs.mark_stalled, "bad"),
        "hit": Span(glyphs.mark_hit, "hit"),
        "evicted": Span(glyphs.mark_evicted, "evict"),
        "finished": Span(glyphs.mark_finished, "text"),
        "finding": Span(glyphs.mark_finding, "strong"),
        "bookmark": Span(glyphs.mark_bookmark, "strong"),
    }


def go_to(model: ScreenModel, timeline: Timeline, destination: Goto) -> None:
    """Moves the model. Raises `GotoError` where there is no such request or time."""
    match destination:
        case ToStep(step):
            model.move_to(step)
        case ToTime(seconds):
            model.move_to(step_at_time(timeline, seconds))
        case ToBlock(block_id, step):
            if step is not None:
                model.move_to(step)
            model.choose_block(block_id)
        case ToNumberedRequest(number, step):
            go_to(model, timeline, ToRequest(numbered(timeline.request_ids(), number), step))
        case ToRequest(request_id, step) if step is not None:
            if timeline.request(request_id) is None:
                raise GotoError(f"there is no request {request_id!r} here")
            model.select(request_id)
            model.move_to(step)
        case ToRequest(request_id):
            row = timeline.request(request_id)
            if row is None:
                raise GotoError(f"there is no request {request_id!r} here; a step is a number, a block is b57")
            model.select(request_id)
            if model.moment is None or request_id not in model.moment.state.requests:
                model.move_to(row.arrival_step)


def step_at_time(timeline: Timeline, seconds: float) -> int:
    """Returns the last step that began within so many seconds of the engine's start. Raises `GotoError`."""
    wanted_ns = round(seconds * 1e9)
    last_ns = step_time_ns(timeline, timeline.last_step)
    if not last_ns:
        raise GotoError("this run has no clock: go by step instead")
    if wanted_ns > last_ns:
        raise GotoError(f"the last step began at {last_ns / 1e9:.1f}s")
    return step_begun_by(timeline, wanted_ns)
