"""What lies below something that opened above a place: the same, in colours nearer to the background.

As Textual does it, but each style is mixed once, not for each of a thousand segments at each painting: opening, typing
and closing paint everything several times, and mixing was a third of what that took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.renderables.background_screen import BackgroundScreen


class DimmedScreen(BackgroundScreen):
    """A screen behind another one."""

    @classmethod
    def process_segments(cls, segments: Iterable[Segment], color: Color) -> Iterator[Segment]:
        """Yields the segments as they look through the colour."""
        for segment in segments:
            text, style, control = segment
            yield segment if control else Segment(text, _dimmed(style, color))


@lru_cache(maxsize=1024)
def _dimmed(style: Style | None, color: Color) -> Style | None:
    [segment] = BackgroundScreen.process_segments([Segment("", style)], color)
    return segment.style
