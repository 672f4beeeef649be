"""Refuses regular expressions that could run for ever: Python's cannot be interrupted, the screen would stand still.

What makes one explode is a repetition or a choice within a repetition, `(a+)+`, `(a|aa)+`, and many open repetitions in
a row.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_OPEN_REPETITIONS = 3

_OPEN_REPETITION = re.compile(r"[*+]|\{\d*,\d*\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_BIG = 100
"""A repetition up to so many times is as bad as an open one."""


class Problem(NamedTuple):
    """What is wrong with a pattern, and at which of its characters."""

    place: int
    reason: str


def check_pattern(source: str) -> Problem | None:
    """Returns what is wrong with a pattern that compiles, None where it is harmless enough."""
    num_open = 0
    groups = [False]
    """Of each group that is open now, whether it holds a repetition or a choice."""
    closed_has_repetition = False
    at = 0
    while at < len(source):
        char = source[at]
        if char == "\\":
            at, closed_has_repetition = at + 2, False
            continue
        if char == "[" and (found := _CLASS.match(source, at)):
            at, closed_has_repetition = found.end(), False
            continue
        if char == "(":
            groups.append(False)
        elif char == ")" and len(groups) > 1:
            closed_has_repetition = groups.pop()
            groups[-1] = groups[-1] or closed_has_repetition
            at += 1
            continue
        elif char == "|":
            groups[-1] = True
        elif found := _OPEN_REPETITION.match(source, at):
            if _is_open(found[0]):
                if closed_has_repetition:
                    return Problem(at, "a repetition or a choice within a repetition could run for ever")
                num_open += 1
                groups[-1] = True
                if num_open > MAX_OPEN_REPETITIONS:
                    return Problem(at, f"more than {MAX_OPEN_REPETITIONS} open repetitions could run for ever")
            at = found.end()
            continue
        closed_has_repetition = False
        at += 1
    return None


def _is_open(repetition: str) -> bool:
    if repetition in "*+":
        return True
    limit = repetition[1:-1].partition(",")[2]
    return not limit or int(limit) > _BIG
