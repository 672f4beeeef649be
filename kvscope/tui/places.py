"""The places that answer questions: which keys open them, and where one is taken from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvscope.tui.screens.compare import CompareScreen
from kvscope.tui.screens.why import WhyScreen

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class Places:
    """Opens why, compare and statistics above the place where one is."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app

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
            self._app.say(f"step {model.step} is A: d at another step compares them, D takes the mark away")
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
