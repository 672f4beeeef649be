"""Keys that come faster than the screen changes: each goes where the keys before it have led.

Textual hands a key to what has the focus at that moment. A key that opens a line to type takes a while to do so, and
what is typed right behind it (a pasted `:120`, a script's keys, a busy machine) would go to the place below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual import events
from textual.app import App
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from kvscope.tui.widgets.prompt_line import PromptLine

OPENING_KEYS = frozenset({"colon", "slash", "p", "i", "m", "b", "o"})
"""Keys that open a line to type, in the places that bind them."""

CLOSING_KEYS = frozenset({"enter", "escape"})
"""Keys that leave a line to type. The prompt line stays where it is, and does both by itself in order."""

LOOK_SECONDS = 0.01
MOST_LOOKS = 50
"""After so many nothing has opened: the key had nothing to open now. Counted in looks, not in seconds, since a busy
machine delays the opening and the looks alike."""


class TypedAhead:
    """Holds keys back while a key before them changes where keys go."""

    def __init__(self, app: App[None], forward: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app = app
        self._forward = forward
        self._held: list[events.Key | events.Paste] = []
        self._timer: Timer | None = None
        self._focused: Widget | None = None
        self._num_looks = 0

    @property
    def is_holding(self) -> bool:
        """True while what is typed is kept back."""
        return self._timer is not None

    async def take(self, event: events.Key | events.Paste) -> None:
        """Forwards the event, or keeps it until the keys before it have done their work."""
        if self.is_holding:
            self._held.append(event)
            return
        if isinstance(event, events.Key) and self._moves_focus(event.key):
            self._focused = self._app.focused
            self._num_looks = 0
            self._timer = self._app.set_interval(LOOK_SECONDS, self._look)
        await self._forward(event)

    def _moves_focus(self, key: str) -> bool:
        focused = self._app.focused
        if isinstance(focused, Input):
            return key in CLOSING_KEYS and not isinstance(focused, PromptLine)
        return key in OPENING_KEYS and key in self._app.screen.active_bindings

    async def _look(self) -> None:
        """Lets the held events go once the focus has moved, up to the next that moves it."""
        focused = self._app.focused
        self._num_looks += 1
        if (focused is None or focused is self._focused) and self._num_looks < MOST_LOOKS:
            return
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        held, self._held = self._held, []
        for event in held:
            await self.take(event)
