"""The two themes: every colour of the screen by its meaning, as `$kv-…` variables.

One meaning has one colour everywhere. Pairs that are close for colour-blind readers differ in shape or stand in
different charts (see the legend in the timeline's gutter, which also has the figures).
"""

from __future__ import annotations

from textual.theme import Theme

DARK_COLORS = {
    "background": "#0F141A",
    "text": "#C9D1D9",
    "dim": "#7A8794",
    "rule": "#33404D",
    "prefill": "#F2A33A",
    "decode": "#5AB0F2",
    "draft": "#F2C4E6",
    "live": "#5C86B3",
    "shared": "#A9DCFF",
    "cached": "#3FA58A",
    "cached-tint": "#1E4A40",
    "free": "#5A6878",
    "new": "#FFFFFF",
    "evict": "#F5D547",
    "hit": "#4BE3B5",
    "bad": "#FF7361",
    "selected": "#453C86",
    "on-selected": "#C3B5FF",
    "cursor": "#2B3846",
    "row": "#1E2731",
    "prompt": "#17222B",
    "strong": "#FFFFFF",
    "chip-text": "#0F141A",
}

LIGHT_COLORS = {
    "background": "#FBFAF7",
    "text": "#24292F",
    "dim": "#66707B",
    "rule": "#C6CDD4",
    "prefill": "#C96A00",
    "decode": "#0B62B8",
    "draft": "#C65BB0",
    "live": "#6485AD",
    "shared": "#073B73",
    "cached": "#2E8F74",
    "cached-tint": "#D5EBE3",
    "free": "#8A949E",
    "new": "#000000",
    "evict": "#7A6500",
    "hit": "#00795A",
    "bad": "#A8071A",
    "selected": "#CFC8F5",
    "on-selected": "#4B35B8",
    "cursor": "#DDE3E9",
    "row": "#E9EDF0",
    "prompt": "#EAEEF1",
    "strong": "#000000",
    "chip-text": "#FBFAF7",
}


def _theme(name: str, colors: dict[str, str], *, is_dark: bool) -> Theme:
    return Theme(
        name=name,
        primary=colors["decode"],
        secondary=colors["live"],
        accent=colors["evict"],
        warning=colors["evict"],
        error=colors["bad"],
        success=colors["hit"],
        foreground=colors["text"],
        background=colors["background"],
        surface=colors["background"],
        panel=colors["prompt"],
        dark=is_dark,
        variables={f"kv-{meaning}": color for meaning, color in colors.items()},
    )


DARK = _theme("kvscope-dark", DARK_COLORS, is_dark=True)
LIGHT = _theme("kvscope-light", LIGHT_COLORS, is_dark=False)

THEMES = {"dark": DARK, "light": LIGHT}
