"""Figures as text: numbers, durations, shares. A dash stands for what there is none of."""

from __future__ import annotations


def number(value: float | None, digits: int = 1) -> str:
    """Returns a figure with thousands separated, `–` for none; whole numbers have no fraction."""
    if value is None:
        return "–"
    if value == int(value) and digits <= 1:
        return f"{int(value):,}"
    return f"{value:,.{digits}f}"


def duration(value: float | None, unit: str) -> str:
    """Returns a latency in ms or, where there is no clock, in steps."""
    if value is None:
        return "–"
    if unit == "steps":
        return number(value, 1)
    milliseconds = value / 1e6
    return f"{milliseconds:,.0f}" if milliseconds >= 1000 else f"{milliseconds:,.1f}"


def share(value: float | None) -> str:
    """Returns a share in percent."""
    return "–" if value is None else f"{value:.1%}"
