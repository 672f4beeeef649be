"""The prompt line: what is typed goes to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import Input

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

LINE_BREAK = "⏎"
"""How a line break stands in the line."""

TIME_ACTIONS = {"time.back": -1, "time.on": 1, "time.back10": -10, "time.on10": 10}
"""Steps of the keys of time that go on working in an empty line: those of them that type nothing."""

PLACEHOLDER = "type a prompt, enter sends it to the engine, esc returns to the keys"


class PromptLine(Input):
    """One line of text, with the prompts that were sent before on ↑ ↓."""

    BINDINGS = [
        Binding("up", "earlier", "earlier prompt", show=False),
        Binding("down", "later", "later prompt", show=False),
        Binding("escape", "leave", "back to the keys", show=False),
    ]

    class Sent(Message):
        """A prompt was entered."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """The prompt line was left."""

    class Moved(Message):
        """A key of time was pressed while nothing is typed: ← and → are time everywhere."""

        def __init__(self, num_steps: int) -> None:
            super().__init__()
            self.num_steps = num_steps

    def __init__(self) -> None:
        super().__init__(id="prompt", placeholder=PLACEHOLDER, compact=True, select_on_focus=False)
        self._sent: list[str] = []
        self._place = 0

    async def action_submit(self) -> None:
        text = self.value.replace(LINE_BREAK, "\n")
        if not text.strip():
            return
        self._sent.append(text)
        self._place = len(self._sent)
        self.value = ""
        self.post_message(self.Sent(text))

    def action_earlier(self) -> None:
        self._recall(-1)

    def action_later(self) -> None:
        self._recall(1)

    def action_leave(self) -> None:
        self.post_message(self.Left())

    async def on_key(self, event: events.Key) -> None:
        """Does at once what the key is bound to.

        Left to the app, it would be done behind letters that were typed after it: two prompts typed ahead of a busy
        screen would be sent as one.
        """
        num_steps = 0 if self.value else self._steps_of(event)
        if num_steps:
            self.post_message(self.Moved(num_steps))
        elif bindings := self._bindings.key_to_bindings.get(event.key):
            await self.run_action(bindings[-1].action)
        else:
            return
        event.stop()
        event.prevent_default()

    def _steps_of(self, event: events.Key) -> int:
        if event.is_printable:
            return 0
        keys = cast("KvscopeApp", self.app).keys
        return next((steps for action, steps in TIME_ACTIONS.items() if keys.is_of(event.key, action)), 0)

    def _recall(self, offset: int) -> None:
        self._place = min(max(self._place + offset, 0), len(self._sent))
        text = self._sent[self._place] if self._place < len(self._sent) else ""
        self.value = text.replace("\n", LINE_BREAK)
        self.cursor_position = len(self.value)

    def _on_paste(self, event: events.Paste) -> None:
        """Takes all lines of a paste, not only the first as an `Input` does; a line break is shown and sent as one."""
        text = LINE_BREAK.join(event.text.splitlines())
        if self.selection.is_empty:
            self.insert_text_at_cursor(text)
        else:
            self.replace(text, *self.selection)
        event.stop()
        event.prevent_default()
