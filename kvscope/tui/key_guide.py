"""Everything that has a key, told: the help of a place, and the palette. Knows the keys as they are configured."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.screen import Screen

from kvscope.tui.actions import app_bindings
from kvscope.tui.screens.modals import TextModal
from kvscope.tui.screens.time_screen import TimeScreen, key_bindings
from kvscope.tui.themes import THEMES
from kvscope.tui.view.help import KeyHelp, help_lines

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

MOUSE = (
    KeyHelp("move", "click", "select; twice: open; timeline: go there"),
    KeyHelp("move", "wheel", "rows; timeline: time, with ctrl zoom"),
)
"""What the mouse does in every place."""


class KeyGuide:
    """The keys of the place that is looked at."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app

    def open_help(self) -> None:
        """Opens the legend and the keys of the place."""
        app = self._app
        keys = self._keys_of(app.screen)
        app.push_screen(TextModal(lambda width: help_lines(app.model.glyphs, keys, width), is_ascii=app.is_ascii))

    def _keys_of(self, screen: Screen[object]) -> list[KeyHelp]:
        keys = [
            KeyHelp((binding.id or "").partition(".")[0], self._app.keys.all_shown(binding), binding.description)
            for binding in (*key_bindings(screen), *app_bindings())
        ]
        more = screen.more_help if isinstance(screen, TimeScreen) else ()
        return [*keys, *more, *MOUSE, KeyHelp("leave", "ctrl+p", "palette: everything by name")]

    def commands(self, screen: Screen[object]) -> Iterator[SystemCommand]:
        """Yields everything that has a key, what parts of the screen have beside keys, and the themes."""
        app = self._app
        for binding in (*key_bindings(screen), *app_bindings()):
            what = binding.description
            yield SystemCommand(
                what[:1].upper() + what[1:],  # not capitalize(): it would make "n and N" "n and n"
                f"key {app.keys.all_shown(binding)}",
                partial(app.call_later, screen.run_action, binding.action),
            )
        yield from app.prompting.commands()
        yield from app.recordings.commands()
        for name, theme in THEMES.items():
            yield SystemCommand(f"Theme: {name}", "colours of the screen", partial(setattr, app, "theme", theme.name))
