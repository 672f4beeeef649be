"""Keys that come faster than the screen changes: each goes where the keys before it have led.

Textual hands a key to what has the focus at that moment. A key that opens a line to type takes a while to do so, and
what is typed right behind it (a pasted `:120`, a script's keys, a busy machine) would go to the place below. What
follows such a key is held back until the key has done its work, which is seen from the order of messages, not from a
clock: a key that opens nothing here holds nobody up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from kvscope.tui.widgets.prompt_line import PromptLine

LEAVING_KEYS = frozenset({"enter", "escape", "up", "down", "tab", "shift+tab"})
"""Keys that may leave a line to type, for good or for the next field. The prompt line does what it does in order."""

MOST_ROUNDS = 20
"""Far more than a key may need: nothing is held for ever, whatever goes wrong in a place that opens."""

LOOK_SECONDS = 0.05
"""How often a message that does not come back is looked after: its widget may have been removed."""


class TypedAhead:
    """Holds keys back while a key before them changes where keys go."""

    def __init__(
        self, app: App[None], forward: Callable[[events.Event], Awaitable[None]], opening_keys: Collection[str]
    ) -> None:
        """`opening_keys` open a line to type, in the places that bind them."""
        self._app = app
        self._forward = forward
        self._opening_keys = opening_keys
        self._held: list[events.Key | events.Paste] = []
        self.is_holding = False
        """What is typed is kept back."""

    async def take(self, event: events.Key | events.Paste) -> None:
        """Forwards the event, or keeps it until the keys before it have done their work."""
        if self.is_holding:
            self._held.append(event)
            return
        target = self._target(event)
        await self._forward(event)
        if target is not None:
            self.is_holding = True
            self._app.run_worker(self._let_go(target), group="typed ahead")

    def _target(self, event: events.Key | events.Paste) -> Widget | None:
        """Returns what hears a key that may move the focus; None for any other."""
        if not isinstance(event, events.Key):
            return None
        focused = self._app.focused
        if isinstance(focused, PromptLine):
            return None
        if isinstance(focused, Input):
            moves = event.key in LEAVING_KEYS
        else:
            moves = event.key in self._opening_keys and event.key in self._app.screen.active_bindings
        return (focused or self._app.screen) if moves else None

    async def _let_go(self, target: Widget) -> None:
        """Lets the held events go once the key has done its work, up to the next that moves the focus."""
        try:
            while True:
                await self._is_done(target)
                moving: Widget | None = None
                while self._held and moving is None:
                    event = self._held.pop(0)
                    moving = self._target(event)
                    await self._forward(event)
                if moving is None:
                    return
                target = moving
        finally:
            self.is_holding = False

    async def _is_done(self, target: Widget) -> None:
        """Waits until the key's action has run, what it has posted was heard, and what it has opened stands."""
        await _round_trip(target)
        before: tuple[Screen[object], Widget | None] | None = None
        for _ in range(MOST_ROUNDS):
            now = (self._app.screen, self._app.focused)
            if now == before:
                return
            before = now
            await _round_trip(self._app.focused or self._app.screen)


async def _round_trip(target: DOMNode) -> None:
    """Waits until all that was posted to a widget before has gone the way of its messages, up to the app."""
    for node in target.ancestors_with_self:
        heard = asyncio.Event()
        if not node.call_later(heard.set):
            continue
        while node.is_running and not heard.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), LOOK_SECONDS)
