"""The app: one code path for live and replay. Knows a timeline and perhaps an engine to talk to, never the engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
from textual import events
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import NoColor
from textual.screen import Screen

from kvscope.analysis.text import visible
from kvscope.control import EngineControl, EngineStarter, EngineStatus
from kvscope.errors import KvscopeError, UsageError, bounded
from kvscope.replay.timeline import Timeline
from kvscope.tui.actions import APP_BINDINGS, OPENING_ACTIONS, actions
from kvscope.tui.answers import Answers
from kvscope.tui.breakpoints import Breakpoints
from kvscope.tui.config import DEFAULT, Config, default_screenshots_folder
from kvscope.tui.desk import Desk, OpenTimeline
from kvscope.tui.driver import TerminalDriver
from kvscope.tui.engine_commands import EngineCommands
from kvscope.tui.finding import Finding
from kvscope.tui.held_key import HeldKey
from kvscope.tui.key_guide import KeyGuide
from kvscope.tui.keymap import Keys
from kvscope.tui.leaving import Leaving
from kvscope.tui.leisure import LeisurelyCollector
from kvscope.tui.markers import Markers, PatientTimeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.navigation import Navigation
from kvscope.tui.notes import Notes
from kvscope.tui.painting import Painter
from kvscope.tui.pictures import Pictures
from kvscope.tui.places import Places
from kvscope.tui.prompting import Prompting
from kvscope.tui.recordings import Alignment, Recordings
from kvscope.tui.restart import Restart
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.themes import THEMES
from kvscope.tui.typed_ahead import TypedAhead
from kvscope.tui.view.glyphs import ASCII, NO_COLOR, UNICODE
from kvscope.tui.widgets.panel import Panel
from kvscope.tui.workloads import Workloads

POLL_SECONDS = 0.06
"""How often there is a look for news: well under what the eye takes for a delay."""

NEWS_SECONDS_IN_USE = 0.25
IN_USE_SECONDS = 0.5
"""While keys come, news come less often: a key that meets a painting of them waits for it."""

NEWS_SECONDS = 0.1
"""So long after a painting no news are shown: an engine that is quick, or a machine that is busy, would have the screen
paint all the time, and a key wait for it."""

READ_AHEAD_STEPS = 8
"""Steps read at once for the life line, so that a key never waits for more."""

PREPARE_AFTER_SECONDS = 0.05
"""After the last painting the ways back are made ready: 15 to 30 ms of work, once in some 60 steps."""

S = TypeVar("S", bound=Screen[Any])


class KvscopeApp(App[None]):
    """The screen over a timeline."""

    CSS_PATH = "app.tcss"
    TITLE = "kvscope"

    BINDINGS: ClassVar[list[BindingType]] = APP_BINDINGS

    def __init__(
        self,
        timeline: Timeline | None,
        control: EngineControl | None = None,
        *,
        others: Sequence[Timeline] = (),
        alignment: Alignment | None = None,
        open_timeline: OpenTimeline | None = None,
        initial_step: int | None = None,
        config: Config = DEFAULT,
        is_ascii: bool | None = None,
        theme: str | None = None,
        is_chat: bool = True,
        owns_engine: bool = True,
        starter: EngineStarter | None = None,
    ) -> None:
        """A live screen has `control`, and opens the recording that the engine's status names with `open_timeline`.

        `others`: recordings to switch to, closed with the screen; `alignment`: see `Recordings`.
        `is_ascii`, `theme`: instead of what `config` says.
        `owns_engine`: leaving the screen ends the engine (after a question where requests are unfinished).
        `starter`: starts another one in its place.
        """
        theme = config.theme if theme is None else theme
        is_ascii = config.is_ascii if is_ascii is None else is_ascii
        if theme not in THEMES:
            raise UsageError(f"there is no theme {theme!r}: {' or '.join(THEMES)}")
        super().__init__()
        for known in THEMES.values():
            self.register_theme(known)
        self.theme = THEMES[theme].name
        if self.no_color:  # Textual would show greys, which are colours too
            self._filters[:] = [NoColor()]
        self.is_ascii = is_ascii
        self.keys = Keys(actions(), config.keys)
        self._bindings.apply_keymap(self.keys.textual)
        self.owns_engine = owns_engine
        glyphs = ASCII if is_ascii else NO_COLOR if self.no_color else UNICODE
        self.model = ScreenModel(timeline=None, control=control, glyphs=glyphs)
        self.model.steps_per_column = config.steps_per_column
        self.model.steps_per_second = config.steps_per_second
        self.navigation = Navigation(self)
        self.engine = EngineCommands(self)
        self.prompting = Prompting(self, is_chat=is_chat)
        self.workloads = Workloads(self)
        self.restart = Restart(self, starter, open_timeline)
        self.answers = Answers(self)
        self.desk = Desk(self, open_timeline)
        self.run_desk = Desk(self, open_timeline, self._watched_at_leisure)
        self.finding = Finding(self, open_timeline)
        self.breakpoints = Breakpoints(self, open_timeline)
        self.notes = Notes(self)
        self.leaving = Leaving(self)
        self.held_key = HeldKey()
        self.painter = Painter(self)
        self.key_guide = KeyGuide(self)
        self.markers = Markers(self, open_timeline)
        self.pictures = Pictures(self, config.screenshots_folder or default_screenshots_folder())
        self.places = Places(self, open_timeline)
        self.recordings = Recordings(self, [*([] if timeline is None else [timeline]), *others], alignment)
        opening_keys = frozenset(key for action in OPENING_ACTIONS for key in self.keys.of(action))
        self.typed_ahead = TypedAhead(self, super().on_event, opening_keys)
        self._first_timeline = timeline
        self._initial_step = initial_step
        self._open_timeline = open_timeline
        self._is_show_pending = False
        self._shown_at = float("-inf")
        self._has_worked = False
        """A key was heard, or something shown, since the last look for news."""
        self._collector = LeisurelyCollector()
        self._last_status: EngineStatus | None = None

    def get_default_screen(self) -> Screen[None]:
        """Returns the main screen."""
        return self._with_keys(MainScreen(self.model, is_ascii=self.is_ascii))

    def push_screen(self, screen: Any, *arguments: Any, **options: Any) -> Any:
        """Opens a screen, with the keys as they are configured."""
        return super().push_screen(self._with_keys(screen), *arguments, **options)

    def pop_screen(self) -> AwaitComplete:
        """Takes the uppermost screen away; the last one stays, whatever a burst of keys does to the palette."""
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()

    def _with_keys(self, screen: S) -> S:
        """Gives a screen its keys, once: by `App.set_keymap` it would be done at every key, in some milliseconds."""
        screen._bindings.apply_keymap(self.keys.textual)
        return screen

    def get_driver_class(self) -> type[Driver]:
        """Returns the driver, one that outlives its terminal where Textual would take its own for terminals."""
        found = super().get_driver_class()
        return TerminalDriver if found is LinuxDriver else found

    def on_mount(self) -> None:
        self.set_class(self.is_ascii, "-ascii")
        if self._first_timeline is not None:
            self.model.open(self._first_timeline, self._initial_step)
            self.markers.look()
            self.show_soon()
        self.set_interval(POLL_SECONDS, self._tick)
        if not self.is_headless:
            self.call_after_refresh(self._collector.start)
            self.leaving.watch()

    def on_unmount(self) -> None:
        self._collector.stop()
        self.desk.close()
        self.run_desk.close()
        self.markers.close()
        self.recordings.close()
        if self.model.timeline is not None:
            self.model.timeline.close()

    async def on_event(self, event: events.Event) -> None:
        """Keys go through `TypedAhead`, everything else as ever."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            self._has_worked = True
            self.markers.hear_key()
            await self.typed_ahead.take(event)
        else:
            if isinstance(event, events.Key):  # back from the place: what it is bound to comes next
                self.held_key.hear(event.key, event.time)
            await super().on_event(event)

    # Following

    def _tick(self) -> None:
        """Shows news, unless something was shown just now, and does what waits for leisure."""
        is_in_use = self.markers.seconds_since_key < IN_USE_SECONDS
        if time.monotonic() - self._shown_at >= (NEWS_SECONDS_IN_USE if is_in_use else NEWS_SECONDS):
            self._poll()
        self.markers.look()
        self.leaving.look()
        self._collector.look(has_work=self._has_worked or self._is_show_pending)
        self._has_worked = False

    def _poll(self) -> None:
        """Follows the recording and the engine's condition."""
        has_new_status = self.note_status()
        if self.model.poll() or has_new_status:
            self.show_soon()
        self.breakpoints.look()

    def note_status(self) -> bool:
        """Takes notice of the engine's condition; True where it changed."""
        status = self.model.engine_status
        if status is None or status == self._last_status:
            return False
        if self._last_status is None or status != _at_step_of(self._last_status, status):
            self.model.version += 1
        self.model.num_news += 1
        self._last_status = status
        if self.model.timeline is None and status.recording:
            self._open_recording(Path(status.recording))
        return True

    def _open_recording(self, path: Path) -> None:
        """Opens the recording that the engine names. Where it cannot be read yet, the next look tries again."""
        if self._open_timeline is None:
            return
        try:
            self.recordings.begin(self._open_timeline(path))
        except KvscopeError as error:
            self._last_status = None
            self.model.error = error.message if path.exists() else ""

    def show_soon(self) -> None:
        """Shows the model once the keys that wait have been heard: a held key costs one painting, not twenty."""
        if not self._is_show_pending:
            self._is_show_pending = True
            self.call_later(self.show_now)

    def show_now(self) -> None:
        """Reads the wanted step and brings the top place up to date."""
        self._is_show_pending, self._has_worked = False, True
        self.model.load()
        for screen in reversed(self.screen_stack):
            if isinstance(screen, TimeScreen):
                screen.show()
                break
        self._shown_at = time.monotonic()
        self._read_ahead(has_read=False)
        self.set_timer(PREPARE_AFTER_SECONDS, partial(self._prepare_ways_back, self._shown_at), name="prepare")

    def _read_ahead(self, *, has_read: bool) -> None:
        """Reads for the life line in small pieces between the keys; shows it when all is there, and tells something."""
        if self.model.read_ahead(READ_AHEAD_STEPS):
            self.set_timer(0.01, lambda: self._read_ahead(has_read=True), name="read ahead")
        elif has_read and self.screen_stack and self.model.take_new_life():  # else the screen has just been left
            with self.painter.together():
                for panel in self.screen.query(Panel):
                    if panel.SHOWS_LIFE:
                        panel.invalidate()
                        panel.show()

    def _prepare_ways_back(self, shown_at: float) -> None:
        """Makes a step and ten back ready where nothing was shown meanwhile: a key would wait for a checkpoint."""
        timeline, moment = self.model.timeline, self.model.moment
        if self._shown_at == shown_at and timeline is not None and moment is not None:
            for num_steps in (10, 1):
                timeline.prepare(moment.step - num_steps)

    def _watched_at_leisure(self, timeline: Timeline) -> PatientTimeline:
        """What takes minutes is read so that no key waits for it, and slowly where nobody looks on."""
        return PatientTimeline(timeline, self.markers.is_disturbed, lambda: self.places.are_statistics_looked_at)

    # Places

    @property
    def main_screen(self) -> MainScreen:
        screen = self.screen_stack[0]
        assert isinstance(screen, MainScreen)
        return screen

    def open_prompt(self) -> None:
        while not isinstance(self.screen, MainScreen):
            self.pop_screen()
        self.main_screen.open_prompt()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Returns the palette."""
        return self.key_guide.commands(screen)

    async def action_interrupt(self) -> None:
        """ctrl+c leaves like q; a second one, while the question stands, leaves at once."""
        if isinstance(self.screen, TimeScreen):
            await self.engine.ask_quit()
        else:
            self.exit()

    def action_picture(self) -> None:
        self.pictures.keep()

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Shows a message for a few seconds. The text is data: no markup."""
        self.notify(visible(bounded(text)), severity="error" if is_error else "information", markup=False)


def _at_step_of(status: EngineStatus, later: EngineStatus) -> EngineStatus:
    """Returns a condition as it would be with the steps that the engine has made since."""
    return msgspec.structs.replace(
        status, step=later.step, num_running=later.num_running, num_waiting=later.num_waiting
    )
