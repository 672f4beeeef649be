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
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.view.events import EventKind, EventTargets, next_event, next_event_of_request, subjects
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
        self.remember()
        match target.kind:
            case "request":
                self._model.select(target.key)
            case "block":
                self._model.choose_block(int(target.key))
            case _:
                self.arrive(int(target.key), target.request_id or None)
        self._app.show_soon()

    def arrive(self, step: int, request_id: str | None = None, block_id: int | None = None) -> None:
        """Goes to what happened in a step, and selects whom and which block it is about, for the keys that follow."""
        self.move_to(step)
        self._model.load()
        self._model.select(request_id)
        if block_id is not None:
            self._model.choose_block(block_id)

    def zoom(self, *, is_finer: bool) -> None:
        if not self._model.zoom(is_finer=is_finer):
            self._app.say(f"the whole run is shown: {self._app.keys.shown('z')} goes back to single steps")
        self._app.show_soon()

    def swap_whole_run(self) -> None:
        """The whole run on one page of the timeline, and single steps again."""
        self._model.swap_whole_run()
        self._app.show_soon()

    def remember(self) -> None:
        """Keeps where one is, before a jump."""
        self._model.remember(self._app.places.name)

    def go_back(self) -> None:
        self._return(self._model.go_back(self._app.places.name), "to go back to")

    def go_forward(self) -> None:
        self._return(self._model.go_forward(self._app.places.name), "to go forward to")

    def _return(self, place: str | None, whither: str) -> None:
        if place is None:
            self._app.say(f"there is no place {whither}")
            return
        self._model.load()
        self._app.places.reopen(place)
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
            self.remember()
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
            self._arrive_at_event(found)

    def _arrive_at_event(self, step: int) -> None:
        """Selects whom the event is about, unless one of them is selected already; of a finding, its request.

        A place that is about one request or block stays with it.
        """
        model = self._model
        model.move_to(step)
        model.load()
        screen = self._app.screen
        is_of_one = isinstance(screen, TimeScreen) and screen.IS_ABOUT_ONE
        if not self.targets.only_selected and not is_of_one and model.walk.whole is not None:
            about = subjects(model.walk.whole.events, self.targets.kinds)
            if not about and "finding" in self.targets.kinds:
                begun = (finding for finding in model.marks.findings if finding.first_step == step)
                about = [(request_id, None) for finding in begun for request_id in finding.request_ids[:1]]
            own = [one for one in about if one[0] == model.selected_id]
            for request_id, block_id in (own or about)[:1]:
                self.arrive(step, request_id, block_id)
        self._app.show_soon()

    def find_event_of_request(self, direction: int) -> None:
        """Goes to what happened to the selected request next, whatever kinds of events are chosen elsewhere; while a
        search stands, to its next hit."""
        model = self._model
        if self._app.finding.is_target:
            self.find_event(direction)
            return
        if model.timeline is None or model.selected_id is None:
            return
        found = next_event_of_request(model.timeline, model.selected_id, model.wanted_step, direction)
        self.go_to_happening(visible(model.selected_id), found, direction)

    def go_to_happening(self, whom: str, step: int | None, direction: int) -> None:
        """Goes to where something happened to somebody next, or says that nothing does."""
        if step is None:
            where = "after" if direction > 0 else "before"
            self._app.say(f"nothing happens to {whom} {where} step {self._model.wanted_step}")
        else:
            self.move_to(step)

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
                model.load()
            model.choose_block(block_id)
        case ToNumberedRequest(number, step):
            go_to(model, timeline, ToRequest(numbered(timeline.request_ids(), number), step))
        case ToRequest(request_id, step) if step is not None:
            if timeline.request(request_id) is None:
                raise GotoError(f"there is no request {request_id!r} here")
            model.move_to(step)
            model.load()
            model.select(request_id)
        case ToRequest(request_id):
            row = timeline.request(request_id)
            if row is None:
                raise GotoError(f"there is no request {request_id!r} here; a step is a number, a block is b57")
            if model.moment is None or request_id not in model.moment.state.requests:
                model.move_to(row.arrival_step)
                model.load()
            model.select(request_id)


def step_at_time(timeline: Timeline, seconds: float) -> int:
    """Returns the last step that began within so many seconds of the engine's start. Raises `GotoError`."""
    wanted_ns = round(seconds * 1e9)
    last_ns = step_time_ns(timeline, timeline.last_step)
    if not last_ns:
        raise GotoError("this run has no clock: go by step instead")
    if wanted_ns > last_ns:
        raise GotoError(f"the last step began at {last_ns / 1e9:.1f}s")
    return step_begun_by(timeline, wanted_ns)
