"""How the roles and backgrounds of spans look in a theme.

Worked out from the theme's `kv-` colours. As component classes of a widget they would be matched against all rules of
the style sheet, fifty of them for every part of the screen that opens, or gets the focus: milliseconds of a key each.
"""

from __future__ import annotations

from typing import NamedTuple

from rich.style import Style
from textual.color import Color
from textual.theme import Theme


class Look(NamedTuple):
    """Colours by the theme's names for their meaning; "" leaves what there is."""

    color: str = ""
    background: str = ""
    is_bold: bool | None = None


ROLES: dict[str, Look] = {
    "text": Look("text"),
    "bold": Look(is_bold=True),
    "strong": Look("strong", is_bold=True),
    "dim": Look("dim"),
    "rule": Look("rule"),
    "rule-focused": Look("strong", is_bold=True),
    "prefill": Look("prefill"),
    "decode": Look("decode"),
    "draft": Look("draft"),
    "live": Look("live"),
    "shared": Look("shared", is_bold=True),
    "cached": Look("cached"),
    "cached-bar": Look("cached-tint"),
    "free": Look("free"),
    "new": Look("new", is_bold=True),
    "evict": Look("evict"),
    "hit": Look("hit"),
    "released": Look("bad"),
    "preempted": Look("bad"),
    "bad": Look("bad"),
    "on-selected": Look("on-selected"),
    "reversed": Look("background", "strong"),
}

BACKGROUNDS: dict[str, Look] = {
    "selected": Look("", "selected"),
    "chosen": Look("background", "on-selected", is_bold=True),
    "cursor": Look("", "cursor"),
    "row": Look("", "row"),
    "prefill": Look("", "prefill"),
    "decode": Look("", "decode"),
    "draft": Look("", "draft"),
    "live": Look("", "live"),
    "cached-bar": Look("", "cached-tint"),
    "cached-tint": Look("", "cached-tint"),
    "chip-live": Look("chip-text", "hit"),
    "chip-idle": Look("text", "cursor"),
    "chip-paused": Look("chip-text", "evict"),
    "chip-held": Look("chip-text", "prefill"),
    "chip-replay": Look("chip-text", "live"),
    "chip-play": Look("chip-text", "hit"),
    "chip-gone": Look("chip-text", "bad"),
    "chip-loading": Look("chip-text", "decode"),
}

REVERSED_WITHOUT_COLOR = frozenset({"selected", "chosen", *(name for name in BACKGROUNDS if name.startswith("chip-"))})

_REVERSE = Style(reverse=True)


def span_style(theme: Theme, role: str, on: str, *, is_colored: bool) -> Style:
    """Returns what a span adds to the style of the widget that paints it. Later roles win over earlier ones, the
    background over all. Raises `KeyError` for a name that no theme knows."""
    style = Style()
    for name in ("text", *role.split()):
        style += _style(theme, ROLES[name])
    if on:
        style += _style(theme, BACKGROUNDS[on])
    if not is_colored and (on in REVERSED_WITHOUT_COLOR or "reversed" in role.split()):
        style += _REVERSE
    return style


def _style(theme: Theme, look: Look) -> Style:
    def color(name: str) -> Color | None:
        return Color.parse(theme.variables[f"kv-{name}"]) if name else None

    front, behind = color(look.color), color(look.background)
    return Style(
        color=None if front is None else front.rich_color,
        bgcolor=None if behind is None else behind.rich_color,
        bold=look.is_bold,
    )
