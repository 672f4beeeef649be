"""The menu of workloads, and the form of one: its figures, and what they would bring about on this engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.worker import Worker

from kvscope.analysis.workload_menu import WORKLOADS, FittedWorkload, Forecast, Workload
from kvscope.tui.screens.form import FormModal
from kvscope.tui.screens.modals import ViewModal, keys_of
from kvscope.tui.view.lines import Line
from kvscope.tui.view.workloads import foretold_lines, menu_lines
from kvscope.tui.widgets.lines_view import LinesView

if TYPE_CHECKING:
    from kvscope.tui.workloads import Workloads

MENU_COLUMNS = 72
PATIENCE_SECONDS = 0.15
"""Figures that are still being typed are not rehearsed."""


class WorkloadMenu(ViewModal[None]):
    """One of the workloads is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "close", show=False),
        Binding("j,down", "walk(1)", "next", show=False, id="move.down"),
        Binding("k,up", "walk(-1)", "before", show=False, id="move.up"),
        Binding("enter", "choose", "open", show=False, id="look.open"),
    ]

    def __init__(self, choose: Callable[[Workload], None], *, is_ascii: bool) -> None:
        super().__init__()
        self._choose = choose
        self._current = 0
        self._view = LinesView(id="workloads", is_ascii=is_ascii)

    def _show(self) -> None:
        width = min(self.app.size.width * 9 // 10 - 4, MENU_COLUMNS)  # inside the frame of a `Box`
        lines = menu_lines(self._current, width, keys_of(self).shown("j k"))
        self._view.styles.width, self._view.styles.height = width, min(len(lines), self.app.size.height - 4)
        self._view.set_lines(lines)

    def action_walk(self, offset: int) -> None:
        self._current = min(max(self._current + offset, 0), len(WORKLOADS) - 1)
        self._show()

    def action_choose(self) -> None:
        self.dismiss()
        self._choose(WORKLOADS[self._current])

    def on_key(self, event: events.Key) -> None:
        if event.character and event.character.isdigit() and 1 <= int(event.character) <= len(WORKLOADS):
            event.stop()
            self._current = int(event.character) - 1
            self.action_choose()


class WorkloadForm(FormModal):
    """The figures of a workload. Each change is rehearsed, enter sends it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "remedy", "restart with other settings", show=False),
    ]
    KEYS = "⏎ sends it · ↑ ↓ field · ctrl+r restarts with other settings · esc leaves"

    def __init__(self, workloads: Workloads, fitted: FittedWorkload, *, is_ascii: bool) -> None:
        super().__init__(
            fitted.workload.title.upper(), workloads.fields(fitted), partial(workloads.send, fitted), is_ascii=is_ascii
        )
        self._workloads = workloads
        self._fitted = fitted
        self._forecast: Forecast | None = None
        self._is_left = threading.Event()

    def on_unmount(self) -> None:
        self._is_left.set()

    def notes(self) -> Sequence[Line]:
        workload = self._fitted.workload
        look_at = keys_of(self).filled(workload.look_at)
        return foretold_lines(workload, self._forecast, look_at, self.inner_width, is_idle=self._workloads.is_idle)

    def texts_changed(self) -> None:
        """Rehearses the figures, unless there is something wrong with them."""
        self._is_left.set()
        self._is_left = threading.Event()
        self._rehearsal: Worker[None] = self.run_worker(self._rehearse, group="rehearsal", exclusive=True)

    async def _rehearse(self) -> None:
        is_left = self._is_left
        self._forecast = None
        figures, self.errors = self._fitted.read(self.texts)
        self.show()
        if self.errors:
            return
        await asyncio.sleep(PATIENCE_SECONDS)
        self._forecast = await asyncio.to_thread(self._fitted.foretell, figures, is_left.is_set)
        self.show()

    def action_remedy(self) -> None:
        """Opens the settings of a restart, with those changed that would bring it about."""
        self.dismiss()
        self._workloads.restart_with(self._fitted, {} if self._forecast is None else self._forecast.remedy)
