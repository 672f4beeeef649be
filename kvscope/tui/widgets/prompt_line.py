"""The prompt line: what is typed goes to the engine. It grows with its lines.

Enter sends; ctrl+n begins a new line in every terminal (shift+enter where the terminal tells it apart). While it is
empty, keys that can begin no prompt are keys of the screen, so that one can look at once at what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea

from kvscope.analysis.text import cell_width, visible

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

PROMPT_BINDINGS = (
    Binding("ctrl+n,shift+enter,alt+enter", "new_line", "a new line", show=False, id="prompt.new_line"),
    Binding("ctrl+t", "choose('mode')", "chat or raw", show=False, id="prompt.mode"),
    Binding("ctrl+o", "choose('settings')", "what goes with every prompt", show=False, id="prompt.settings"),
    Binding("ctrl+f", "choose('file')", "take a file", show=False, id="prompt.file"),
    Binding("ctrl+u", "clear", "empty it; ↑ brings it back", show=False, id="prompt.clear"),
)
"""What a config file may give other keys. shift+enter and alt+enter as far as terminals deliver them."""

PLACEHOLDERS = (
    "type a prompt: enter sends it, esc leaves; while it is empty ← → are time",
    "type a prompt: enter sends it, esc leaves",
    "type a prompt",
)
"""The longest that fits is shown."""

MAX_ROWS = 10
"""It grows up to a quarter of the screen, and no further than this; then it scrolls."""

PassedKeys = Mapping[str, str]
"""Keys that are the screen's while nothing is typed, with the action of the screen that each does."""


class PromptLine(TextArea):
    """An editor of one line and more, with the prompts that were sent before on ↑ ↓."""

    BINDINGS = [
        Binding("escape", "leave", "back to the keys", show=False),
        Binding("up", "up", "up, or earlier prompt", show=False),
        Binding("down", "down", "down, or later prompt", show=False),
    ]

    class Sent(Message):
        """A prompt was entered."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """The prompt line was left."""

    class Passed(Message):
        """A key that is the screen's while nothing is typed: the action that it does there."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    class Chosen(Message):
        """A key of the prompt's own settings: "mode", "settings" or "file"."""

        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    def __init__(self, passed_keys: Callable[[], PassedKeys]) -> None:
        """`passed_keys` is asked at each key while nothing is typed."""
        super().__init__(
            id="prompt", placeholder=PLACEHOLDERS[0], compact=True, highlight_cursor_line=False, soft_wrap=True
        )
        self.show_vertical_scrollbar = False
        self._passed_keys = passed_keys
        self._sent: list[str] = []
        self._place = 0
        self._draft = ""
        """What was typed before going back in the history."""

    # Keys

    async def on_key(self, event: events.Key) -> None:
        """Does at once what the key is bound to.

        Left to the app, it would be done behind letters that were typed after it: two prompts typed ahead of a busy
        screen would be sent as one.
        """
        app = cast("KvscopeApp", self.app)
        own = next((binding for binding in PROMPT_BINDINGS if app.keys.is_of(event.key, binding.id or "")), None)
        if event.key == "enter":
            self._submit()
        elif own is not None:
            await self.run_action(own.action)
        elif not self.text and (action := self._passed_keys().get(event.key)) is not None:
            app.held_key.hear(event.key, event.time)
            self.post_message(self.Passed(action))
        elif bindings := self._bindings.key_to_bindings.get(event.key):
            await self.run_action(bindings[-1].action)
        else:
            return
        event.stop()
        event.prevent_default()

    def _submit(self) -> None:
        """Sends what is typed; with nothing typed it leaves, so that a second enter goes to the keys."""
        text = self.text
        if not text.strip():
            self.action_leave()
            return
        self.remember(text)
        self.text = ""
        self.post_message(self.Sent(text))

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def action_new_line(self) -> None:
        self.insert("\n")

    def action_clear(self) -> None:
        """Takes away all that is typed, however many lines; the history has it."""
        if self.text.strip():
            self.remember(self.text)
        self.text = ""

    def action_choose(self, what: str) -> None:
        self.post_message(self.Chosen(what))

    def action_up(self) -> None:
        if self.cursor_at_first_row:
            self._recall(-1)
        else:
            self.action_cursor_up()

    def action_down(self) -> None:
        if self.cursor_at_last_row:
            self._recall(1)
        else:
            self.action_cursor_down()

    @property
    def cursor_at_first_row(self) -> bool:
        """The cursor is in the first row, a wrapped line counted as the rows it takes."""
        return self.wrapped_document.location_to_offset(self.cursor_location).y == 0

    @property
    def cursor_at_last_row(self) -> bool:
        """The cursor is in the last row."""
        return self.wrapped_document.location_to_offset(self.cursor_location).y >= self.wrapped_document.height - 1

    def on_paste(self, event: events.Paste) -> None:
        """Takes all lines as they are, by whatever a terminal separates them; the last one needs no end."""
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self._replace_via_keyboard(text.removesuffix("\n") if text.count("\n") == 1 else text, *self.selection)
        event.stop()
        event.prevent_default()

    # History

    def remember(self, text: str) -> None:
        """Keeps a prompt for ↑."""
        if not self._sent or self._sent[-1] != text:
            self._sent.append(text)
        self._place, self._draft = len(self._sent), ""

    def bring_back(self, text: str) -> None:
        """Puts a prompt back that was not taken, unless another one is being typed; ↑ has it in any case."""
        if not self.text:
            self._set(text)

    def _recall(self, offset: int) -> None:
        place = min(max(self._place + offset, 0), len(self._sent))
        if place == self._place:
            return
        if self._place == len(self._sent):
            self._draft = self.text
        self._place = place
        self._set(self._sent[place] if place < len(self._sent) else self._draft)

    def _set(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    # Looks

    @property
    def num_rows(self) -> int:
        """Rows that it takes: one while nobody types."""
        most = min(max(self.app.size.height // 4, 1), MAX_ROWS) if self.has_focus else 1
        return min(max(self.wrapped_document.height, 1), most)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        self.fit()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.fit)

    def on_focus(self) -> None:
        self.call_later(self.fit)  # the widget itself hears of it behind this

    def on_blur(self) -> None:
        self.call_later(self.fit)

    def fit(self) -> None:
        """Takes as many rows as the text needs, and as much of the hint as fits."""
        fitting = (text for text in PLACEHOLDERS if cell_width(text) < self.size.width)
        self.placeholder = next(fitting, PLACEHOLDERS[-1])
        if self.styles.height is None or self.styles.height.value != self.num_rows:
            self.styles.height = self.num_rows
            self.call_after_refresh(self.scroll_cursor_visible)

    def get_line(self, line_index: int) -> Text:
        """Returns a line as it is painted: what a terminal would obey is shown, in one cell a character."""
        line = self.document.get_line(line_index)
        if not line.isprintable():
            line = "".join(char if char.isprintable() or char == "\t" else _shown(char) for char in line)
        return Text(line, end="", no_wrap=True)


def _shown(char: str) -> str:
    """Returns one character for one that is hidden or obeyed."""
    glyph = visible(char)
    return glyph if len(glyph) == 1 else "\N{REPLACEMENT CHARACTER}"
