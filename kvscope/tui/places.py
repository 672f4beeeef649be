"""The places that answer questions: which keys open them, and where one is taken from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvscope.tui.screens.compare import CompareScreen
from kvscope.tui.screens.statistics import StatisticsScreen
from kvscope.tui.screens.why import WhyScreen
from kvscope.tui.widgets.statistics_panels import StatisticsReading

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class Places:
    """Opens why, compare and statistics above the place where one is."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app
        self._statistics: StatisticsReading | None = None
        """Read once for each end of the recording."""

    def open_why(self) -> None:
        """Opens why the selected request fares as it does at the step."""
        model = self._app.model
        if model.selected_id is None or model.moment is None:
            self._app.say("no request is selected: there is nothing to ask about yet")
        else:
            self._app.push_screen(WhyScreen(model, is_ascii=self._app.is_ascii))

    def mark_or_compare(self) -> None:
        """Marks the step as A; where one is marked, opens the comparison with it, and there marks anew."""
        model = self._app.model
        if model.moment is None:
            return
        is_there = isinstance(self._app.screen, CompareScreen)
        if model.mark_step is None or is_there:
            model.mark(model.step)
            self._app.say(f"step {model.step} is A: d elsewhere compares, D clears")
            self._app.show_soon()
        else:
            self._app.push_screen(CompareScreen(model, is_ascii=self._app.is_ascii))

    def clear_mark(self) -> None:
        """Takes the mark away, and leaves the comparison."""
        model = self._app.model
        if model.mark_step is None:
            self._app.say("no step is marked: d marks one as A")
            return
        model.mark(None)
        if isinstance(self._app.screen, CompareScreen):
            self._app.screen.action_leave()
        self._app.show_soon()

    def open_statistics(self) -> None:
        """Opens the figures of the recording and what stands out in it."""
        timeline = self._app.model.timeline
        if timeline is None or timeline.last_step < 0:
            self._app.say("there is no step yet: nothing to count")
            return
        known = self._statistics
        if known is None or known.timeline is not timeline or known.last_step != timeline.last_step:
            known = self._statistics = StatisticsReading(self._app, timeline)
        if not isinstance(self._app.screen, StatisticsScreen):
            self._app.push_screen(StatisticsScreen(self._app.model, known, is_ascii=self._app.is_ascii))
