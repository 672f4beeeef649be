"""The mouse wheel: `j k` in the list under the mouse, time over a timeline, its zoom with ctrl."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from textual import on
from textual.screen import Screen

from kvscope.tui.widgets.lines_view import LinesView

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

T = TypeVar("T")


class HearsWheel(Screen[T]):
    """Base of everything that opens. Subclasses say in `action_walk` what their lists do."""

    def action_walk(self, num_rows: int) -> None:
        """Moves in the list that has the focus."""

    @on(LinesView.Turned)
    def _turn(self, message: LinesView.Turned) -> None:
        view = message.view
        if view.SHOWS_TIME:
            self._turn_time(message.num_notches, is_zooming=message.is_with_ctrl)
            return
        if view.can_focus:
            self.set_focus(view)  # at once: `focused` is another now, `has_focus` follows when the view hears of it
        self.action_walk(message.num_notches)

    def _turn_time(self, num_notches: int, *, is_zooming: bool) -> None:
        """Goes on by columns of the timeline: a notch shows, however many steps stand in one."""
        app = cast("KvscopeApp", self.app)
        if is_zooming:
            app.navigation.zoom(is_finer=num_notches < 0)
        else:
            window = app.model.window
            app.navigation.move_by(num_notches * (1 if window is None else window.steps_per_column))
