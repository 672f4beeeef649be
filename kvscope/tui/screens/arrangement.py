"""Where the parts of the main screen stand: at every size, and with one panel alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvscope.tui.view.layout import Layout, main_layout
from kvscope.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from kvscope.tui.screens.main import MainScreen


class Arrangement:
    """What decides it besides the size, and its outcome."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._layout: Layout | None = None
        self._swaps_request = False
        """The request stands in the pool's place, on a screen that has no column for it."""
        self.is_prompt_open = False
        self.maximised: Panel | None = None
        """The panel that has the screen for itself."""

    def swap(self, *, shows_request: bool) -> bool:
        """Gives the pool's place to the request, or back, where both cannot be seen; False where nothing changes."""
        has_column = self._layout is not None and self._layout.request_columns > 0
        if has_column or shows_request == self._swaps_request:
            return False
        self._swaps_request = shows_request
        return True

    def arrange(self, *, is_live: bool) -> None:
        """Gives every part its place at the size of the terminal."""
        screen = self._screen
        columns, rows = screen.app.size
        layout = self._layout = main_layout(columns, rows, is_live=is_live)
        timeline = layout.timeline
        screen.timeline_panel.layout_rows = timeline
        screen.timeline_panel.display = timeline is not None
        if timeline is not None:
            screen.timeline_panel.styles.height = timeline.rows
        screen.step_panel.display = screen.queues_panel.display = True
        screen.step_panel.styles.height = layout.step_rows
        screen.queues_panel.styles.width = layout.queues_columns
        screen.pool_panel.shows_zero_counts = layout.shows_zero_counts
        self._arrange_columns(layout)
        screen.prompt_bar.display = layout.has_prompt or self.is_prompt_open
        screen.prompt_bar.fit()
        self._arrange_maximised()
        for panel in screen.panels:
            panel.invalidate()
        screen.kvscope.show_soon()

    def _arrange_columns(self, layout: Layout) -> None:
        """Shows the pool and the request side by side, or one of them."""
        pool, request = self._screen.pool_panel, self._screen.request_panel
        has_column = layout.request_columns > 0
        request.display = has_column or (self._swaps_request and layout.pool_columns > 0)
        pool.display = layout.pool_columns > 0 and (has_column or not request.display)
        pool.styles.width = layout.pool_columns
        request.styles.width = layout.request_columns if has_column else layout.pool_columns

    def _arrange_maximised(self) -> None:
        """Gives the maximised panel, if one is, the place of all."""
        screen, alone = self._screen, self.maximised
        hint = f"{screen.kvscope.keys.shown('Z')} shows all panels"
        for panel in screen.panels:
            panel.leave_hint = hint if panel is alone else ""
            panel.set_class(panel is alone, "-maximised")
            if alone is not None:
                panel.display = panel is alone
        body = screen.query_one("#body")
        body.display = alone is None or alone.parent is body
        if alone is not None and alone.parent is body:
            alone.styles.width = "100%"
        elif alone is not None:
            alone.styles.height = "1fr"
