"""The places that answer questions: which keys open them."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
