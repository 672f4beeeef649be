"""Screens that close once, however fast the keys come.

Textual's `dismiss` takes the uppermost screen away, whoever calls it: a second key that was heard before the first had
done its work would close the place below, and at the last one end everything.
"""

from __future__ import annotations

from typing import TypeVar

from rich.console import RenderableType
from textual.await_complete import AwaitComplete
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen

from kvscope.tui.dimming import DimmedScreen
from kvscope.tui.wheel import HearsWheel

T = TypeVar("T")


class ClosesOnce(HearsWheel[T]):
    """A screen whose `dismiss` takes itself away and nothing else."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Closes the screen; does nothing where it is no longer the uppermost."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class Modal(ClosesOnce[T], ModalScreen[T]):
    """What opens above a place."""

    def render(self) -> RenderableType:
        """Returns the place below, dimmed."""
        found = super().render()
        return DimmedScreen(found.screen, found.color) if isinstance(found, BackgroundScreen) else found
