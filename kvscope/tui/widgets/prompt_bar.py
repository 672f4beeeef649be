"""The row of the prompt: chat or raw, the line to type, what goes with each prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal

from kvscope.analysis.text import cell_width, visible
from kvscope.tui.keymap import Keys
from kvscope.tui.view.help import KeyHelp
from kvscope.tui.view.lines import Span, fit
from kvscope.tui.widgets.lines_view import LinesView
from kvscope.tui.widgets.prompt_line import PROMPT_BINDINGS, PassedKeys, PromptLine

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

MODE_COLUMNS = 8


def prompt_keys(keys: Keys) -> list[tuple[str, str]]:
    """Returns the footer while a prompt is typed: its own keys as they are configured, the others as ever."""
    own = ("ctrl+o", "settings"), ("ctrl+t", "chat/raw"), ("ctrl+f", "file")
    shown = [(keys.shown(key), what) for key, what in (("ctrl+n", "new line"), *own)]
    return [("⏎", "send"), shown[0], ("↑", "earlier"), *shown[1:], ("esc", "keys")]


def prompt_help(keys: Keys) -> list[KeyHelp]:
    """Returns the keys of the prompt line, for the help."""
    own = [KeyHelp("prompt", keys.all_shown(binding), binding.description) for binding in PROMPT_BINDINGS]
    fixed = ("enter", "send; nothing typed: back to the keys"), ("↑ ↓", "earlier prompts, later ones")
    told = [KeyHelp("prompt", key, what) for key, what in (*fixed, ("esc", "back to the keys"))]
    return [told[0], own[0], told[1], *own[1:], told[2]]


PASSED_KEYS = {
    "left": "move(-1)",
    "right": "move(1)",
    "shift+left": "move(-10)",
    "shift+right": "move(10)",
    "home": "first",
    "end": "last",
    "pageup": "walk(-10)",
    "pagedown": "walk(10)",
    "tab": "focus_panel(1)",
    "shift+tab": "focus_panel(-1)",
}
"""Keys that begin no prompt, and what the main screen does at them while none is typed."""


class PromptBar(Horizontal):
    """Sends what is typed; a click on its ends opens the settings."""

    def __init__(self, *, is_ascii: bool) -> None:
        super().__init__(id="prompt-bar")
        self.line = PromptLine(self._passed_keys)
        self._mode_view = LinesView(id="prompt-mode", is_ascii=is_ascii)
        self._settings_view = LinesView(id="prompt-settings", is_ascii=is_ascii)
        self._settings_text = ""

    @property
    def kvscope(self) -> KvscopeApp:
        return cast("KvscopeApp", self.app)

    def compose(self) -> ComposeResult:
        yield self._mode_view
        yield self.line
        yield self._settings_view

    def show(self) -> None:
        """Shows the settings that are in force."""
        status = self.kvscope.model.engine_status
        settings = self.kvscope.prompting.settings
        self._mode_view.set_lines([(Span(f" {'chat' if settings.is_chat else 'raw'} ›", "bold"),)])
        self._settings_text = visible(settings.line({} if status is None else status.sampling))
        self.fit()

    def fit(self) -> None:
        """Gives the settings at most two fifths of the row."""
        text = fit(self._settings_text, max(self.app.size.width * 2 // 5 - 2, 0))
        self._mode_view.styles.width = MODE_COLUMNS
        self._settings_view.styles.width = cell_width(text) + 2 if text else 0
        self._settings_view.set_lines([(Span(f" {text}", "dim"),)])

    def _passed_keys(self) -> PassedKeys:
        """Returns the keys that are the screen's while no prompt is typed."""
        status = self.kvscope.model.status
        return {
            **PASSED_KEYS,
            # A raw prompt may begin with a blank, and any with a full stop; but not while one steps.
            **({"space": "pause_or_run"} if self.kvscope.prompting.settings.is_chat else {}),
            **({"full_stop": "engine_step"} if status is not None and status.phase == "paused" else {}),
        }

    @on(PromptLine.Passed)
    async def _pass(self, message: PromptLine.Passed) -> None:
        await self.screen.run_action(message.action)

    @on(PromptLine.Sent)
    async def _send(self, message: PromptLine.Sent) -> None:
        if not await self.kvscope.prompting.submit(message.text):
            self.line.bring_back(message.text)

    @on(PromptLine.Chosen)
    def _choose(self, message: PromptLine.Chosen) -> None:
        match message.what:
            case "mode":
                self.kvscope.prompting.toggle_chat()
            case "file":
                self.kvscope.prompting.ask_file()
            case _:
                self.kvscope.prompting.ask_settings()

    @on(LinesView.Clicked)
    def _click(self, message: LinesView.Clicked) -> None:
        message.stop()
        self.kvscope.prompting.ask_settings()
