"""The places: a request, a block, a cell, and those that answer questions: what opens them, and what each keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope.analysis.divergence import Matching
from kvscope.analysis.event_log import EventFilter
from kvscope.analysis.spans import Sentence
from kvscope.tui.desk import OpenTimeline
from kvscope.tui.model import Selection
from kvscope.tui.screens.block import BlockScreen
from kvscope.tui.screens.cell import CellScreen
from kvscope.tui.screens.compare import CompareScreen
from kvscope.tui.screens.divergence import DivergenceScreen
from kvscope.tui.screens.event_log import EventLogScreen
from kvscope.tui.screens.modals import TextModal
from kvscope.tui.screens.request import RequestScreen
from kvscope.tui.screens.statistics import StatisticsScreen
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.screens.why import WhyScreen
from kvscope.tui.view.lines import Line
from kvscope.tui.view.step import sentence_rows
from kvscope.tui.widgets.divergence_panels import DivergenceReading
from kvscope.tui.widgets.statistics_panels import StatisticsReading

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class Places:
    """Opens each above the place where one is."""

    def __init__(self, app: KvscopeApp, open_timeline: OpenTimeline | None) -> None:
        self._app = app
        self._open_timeline = open_timeline
        self._event_filter = EventFilter()
        self._statistics: dict[Path, StatisticsReading] = {}
        """Of each recording, read once for each end of it."""
        self._divergences: dict[tuple[tuple[int, int], Matching], DivergenceReading] = {}

    @property
    def name(self) -> str:
        """How the place where one is is called, whatever has opened above it."""
        return next(
            type(screen).__name__ for screen in reversed(self._app.screen_stack) if isinstance(screen, TimeScreen)
        )

    def reopen(self, name: str) -> None:
        """Goes to the place of this name: down to it where it stands below, else it is opened for the selection."""
        app = self._app
        if any(type(screen).__name__ == name for screen in app.screen_stack):
            while self.name != name:
                if isinstance(app.screen, TimeScreen):
                    app.screen.end()
                app.pop_screen()
        elif name == RequestScreen.__name__ and app.model.selected_id is not None:
            self.open_request(app.model.selected_id)
        elif name == BlockScreen.__name__ and app.model.block_id is not None:
            self.open_block(app.model.block_id)
        elif name == WhyScreen.__name__:
            self.open_why()
        elif name == StatisticsScreen.__name__:
            self.open_statistics()

    def open_request(self, request_id: str) -> None:
        """Opens the place of a request; where it was not selected before, `esc` brings back what was."""
        app, before = self._app, self._app.model.selection
        app.model.select(request_id)
        if not isinstance(app.screen, RequestScreen):
            app.push_screen(RequestScreen(app.model, is_ascii=app.is_ascii))
        self._came_from(before, before.request_id != request_id)

    def open_block(self, block_id: int) -> None:
        """Opens the place of a block; as with a request."""
        app, before = self._app, self._app.model.selection
        app.model.choose_block(block_id)
        if not isinstance(app.screen, BlockScreen):
            app.push_screen(BlockScreen(app, app.model, self._open_timeline, is_ascii=app.is_ascii))
        self._came_from(before, before.block_id != block_id)

    def _came_from(self, before: Selection, has_jumped: bool) -> None:
        """Keeps for the uppermost place what was selected before the first jump that led to it or inside it."""
        place = self._app.screen
        if has_jumped and isinstance(place, TimeScreen) and place.came_from is None:
            place.came_from = before
        self._app.show_soon()

    def open_sentences(self, sentences: Sequence[Sentence]) -> None:
        """Opens all decisions of the step."""

        def lines(width: int) -> list[Line]:
            return [line for sentence in sentences for line in sentence_rows(sentence, width)]

        self._app.push_screen(TextModal(lines, is_ascii=self._app.is_ascii))

    def open_cell(self, block_ids: Sequence[int], block_id: int) -> None:
        """Opens a cell of the pool's map with one of its blocks chosen; where that is all of it, the block's place."""
        if len(block_ids) == 1:
            self.open_block(block_id)
            return
        self._app.model.choose_block(block_id)
        self._app.push_screen(CellScreen(self._app.model, block_ids, is_ascii=self._app.is_ascii))

    def open_why(self, *, of_whole_life: bool = False) -> None:
        """Opens why the selected request fares as it does at the step, or as it did in its whole life."""
        model = self._app.model
        if model.selected_id is None or model.moment is None:
            self._app.say("no request is selected: there is nothing to ask about yet")
        else:
            is_ascii = self._app.is_ascii
            self._app.push_screen(WhyScreen(model, of_whole_life=of_whole_life, is_ascii=is_ascii))

    def mark_or_compare(self) -> None:
        """Marks the step as A; where one is marked, opens the comparison with it, and there marks anew."""
        model = self._app.model
        if model.moment is None:
            return
        is_there = isinstance(self._app.screen, CompareScreen)
        if model.mark_step is None or is_there:
            model.mark(model.step)
            d, clear = self._app.keys.shown("d"), self._app.keys.shown("D")
            self._app.say(f"step {model.step} is A: {d} elsewhere compares, {clear} clears")
            self._app.show_soon()
        else:
            self._app.push_screen(CompareScreen(model, is_ascii=self._app.is_ascii))

    def clear_mark(self) -> None:
        """Takes the mark away, and leaves the comparison."""
        model = self._app.model
        if model.mark_step is None:
            self._app.say(f"no step is marked: {self._app.keys.shown('d')} marks one as A")
            return
        model.mark(None)
        if isinstance(self._app.screen, CompareScreen):
            self._app.screen.close()
        self._app.show_soon()

    def open_event_log(self) -> None:
        """Opens the events of the step and of those around it, of the kinds that were chosen last."""
        app = self._app
        if app.model.moment is None:
            app.say("there is no step yet: nothing has happened")
        elif not isinstance(app.screen, EventLogScreen):
            app.push_screen(EventLogScreen(app, app.model, self._event_filter, is_ascii=app.is_ascii))

    def keep_event_filter(self, chosen: EventFilter) -> None:
        """Keeps the kinds of events for the next time that the log is opened."""
        self._event_filter = EventFilter(chosen.kinds)

    @property
    def are_statistics_looked_at(self) -> bool:
        return any(reading.is_looked_at for reading in self._statistics.values())

    def open_statistics(self) -> None:
        """Opens the figures of the recording and what stands out in it."""
        timeline = self._app.model.timeline
        if timeline is None or timeline.last_step < 0:
            self._app.say("there is no step yet: nothing to count")
            return
        known = self._statistics.get(timeline.path)
        if known is None or known.timeline is not timeline or known.last_step != timeline.last_step:
            known = self._statistics[timeline.path] = StatisticsReading(self._app, timeline)
        if not isinstance(self._app.screen, StatisticsScreen):
            self._app.push_screen(StatisticsScreen(self._app.model, known, is_ascii=self._app.is_ascii))

    def open_divergence(self) -> None:
        """Opens where the first recording and the one that is looked at (or the second) part."""
        recordings = self._app.recordings
        if not recordings.are_several:
            self._app.say("one recording is open: kvscope replay A B opens two to compare")
            return
        indexes = 0, recordings.current or 1
        is_ascii = self._app.is_ascii
        self._app.push_screen(DivergenceScreen(self._app.model, self._divergence, indexes, is_ascii=is_ascii))

    def _divergence(self, indexes: tuple[int, int], matching: Matching) -> DivergenceReading:
        known = self._divergences.get((indexes, matching))
        if known is None or not known.is_current:
            known = DivergenceReading(self._app, self._open_timeline, indexes, matching)
            self._divergences[indexes, matching] = known
        return known
