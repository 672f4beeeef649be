"""The app: one code path for live and replay. Knows a timeline and perhaps an engine to talk to, never the engine."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.drivers.headless_driver import HeadlessDriver

from kvscope.analysis.text import visible
from kvscope.control import (
    EngineControl,
    EngineStatus,
)
from kvscope.errors import KvscopeError
from kvscope.replay.timeline import Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.themes import THEMES
from kvscope.tui.view.events import EventSearch, EventTargets
from kvscope.tui.view.glyphs import ASCII, NO_COLOR, UNICODE

OpenTimeline = Callable[[Path], Timeline]

POLL_SECONDS = 0.06
"""How often a growing recording is looked at: well under what the eye takes for a delay."""

READ_AHEAD_STEPS = 8
"""Steps read at once for the life line, so that a key never waits for more."""

SEARCH_STEPS = 2_000
"""Timeline columns read at once by a search for an event."""

SPEEDS = (1, 2, 4, 8, 16, 32, 64, 128)


class KvscopeApp(App[None]):
    """The screen over a timeline."""

    CSS_PATH = "app.tcss"
    TITLE = "kvscope"
    ENABLE_COMMAND_PALETTE = True

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", "quit", show=False, priority=True, id="leave.interrupt"),
    ]

    def __init__(
        self,
        timeline: Timeline | None,
        control: EngineControl | None = None,
        *,
        open_timeline: OpenTimeline | None = None,
        initial_step: int | None = None,
        is_ascii: bool = False,
        theme: str = "dark",
        is_chat: bool = True,
    ) -> None:
        super().__init__()
        for known in THEMES.values():
            self.register_theme(known)
        self.theme = THEMES[theme].name
        self.is_ascii = is_ascii
        glyphs = ASCII if is_ascii else NO_COLOR if self.no_color else UNICODE
        self.model = ScreenModel(timeline=None, control=control, glyphs=glyphs)
        self.targets = EventTargets()
        self._first_timeline = timeline
        self._initial_step = initial_step
        self._open_timeline = open_timeline
        self._is_chat = is_chat
        self._is_show_pending = False
        self._last_status: EngineStatus | None = None
        self._unopened = ""
        self._search: EventSearch | None = None

    @property
    def control(self) -> EngineControl | None:
        return self.model.control

    def get_default_screen(self) -> MainScreen:
        return MainScreen(self.model, is_ascii=self.is_ascii)

    def on_mount(self) -> None:
        if self._first_timeline is not None:
            self._take(self._first_timeline, self._initial_step)
        self.set_interval(POLL_SECONDS, self._poll)
        if not isinstance(self._driver, HeadlessDriver):
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.exit)

    # Following

    def _take(self, timeline: Timeline, step: int | None = None) -> None:
        self.model.open(timeline, step)
        self.show_soon()

    def _poll(self) -> None:
        """Follows the recording and the engine's condition."""
        is_new = self._poll_status()
        if self.model.poll() or is_new:
            self.show_soon()

    def _poll_status(self) -> bool:
        status = self.model.status
        if status is None or status is self._last_status:
            return False
        before, self._last_status = self._last_status, status
        self.model.version += 1
        if self.model.timeline is None and status.recording and status.recording != self._unopened:
            self._open_recording(status.recording)
        return status != before

    def _open_recording(self, path: str) -> None:
        if self._open_timeline is None:
            return
        try:
            self._take(self._open_timeline(Path(path)))
            self.model.error = ""
        except KvscopeError as error:  # it may not be there yet: the next condition brings the next try
            self.model.error = error.message if self.model.status and self.model.status.step >= 0 else ""
            self._last_status = None

    def show_soon(self) -> None:
        """Shows the model once the keys that wait have been heard: a held key costs one painting, not twenty."""
        if not self._is_show_pending:
            self._is_show_pending = True
            self.call_later(self.show_now)

    def show_now(self) -> None:
        """Reads the wanted step and brings the top place up to date."""
        self._is_show_pending = False
        self.model.load()
        for screen in reversed(self.screen_stack):
            if isinstance(screen, TimeScreen):
                screen.show()
                break
        self._read_ahead()

    def _read_ahead(self) -> None:
        """Fills the life line in small pieces between the keys."""
        if self.model.read_ahead(READ_AHEAD_STEPS):
            self.set_timer(0.01, self._read_more)

    def _read_more(self) -> None:
        if self.model.read_ahead(READ_AHEAD_STEPS):
            self.set_timer(0.01, self._read_more)
        else:
            self.model.version += 1
            self.show_soon()

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Shows a message for a few seconds. The text is data: no markup."""
        self.notify(visible(text), severity="error" if is_error else "information", markup=False)
