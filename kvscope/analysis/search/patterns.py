"""Refuses regular expressions that could run for ever: Python's cannot be interrupted, the screen would stand still.

What makes one explode is a repetition or a choice within a repetition, `(a+)+`, `(a|aa)+`, and many repetitions in a
row, since each of them may be tried at every length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OPEN_LENGTH = 300
"""What an open repetition counts: it is tried on texts of this length, see `texts.PIECE_CHARACTERS`."""

MAX_TRIES = _OPEN_LENGTH**2
"""Two open repetitions, or what costs as much: well below a second on a piece of text."""

_REPETITION = re.compile(r"[*+?]|\{(?P<min>\d*)(?P<comma>,?)(?P<max>\d*)\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


class Problem(NamedTuple):
    """What is wrong with a pattern, and at which of its characters."""

    place: int
    reason: str


def check_pattern(source: str) -> Problem | None:
    """Returns what is wrong with a pattern that compiles, None where it is harmless enough."""
    num_tries = 1
    groups = [False]
    """Of each group that is open now, whether it holds a repetition or a choice."""
    has_choice_before = False
    """What stands directly before is a group with a repetition or a choice."""
    at = 0
    while at < len(source):
        char = source[at]
        if char == "\\":
            at, has_choice_before = at + 2, False
            continue
        if char == "[" and (found := _CLASS.match(source, at)):
            at, has_choice_before = found.end(), False
            continue
        if char == ")" and len(groups) > 1:
            has_choice_before = groups.pop()
            groups[-1] = groups[-1] or has_choice_before
            at += 1
            continue
        if char == "(":
            groups.append(False)
            at += 2 if source[at + 1 : at + 2] == "?" else 1  # the ? of (?: repeats nothing
        elif char == "|":
            groups[-1] = True
            num_tries *= 2 if len(groups) > 1 else 1
            at += 1
        elif found := _REPETITION.match(source, at):
            tries = _num_tries(found)
            if tries > 2 and has_choice_before:
                return Problem(at, "a repetition or a choice within a repetition could run for ever")
            groups[-1] = groups[-1] or tries > 1
            num_tries *= tries
            at = found.end()
            if source[at : at + 1] in ("?", "+"):  # lazy, possessive
                at += 1
        else:
            at += 1
        if num_tries > MAX_TRIES:
            return Problem(at - 1, "more than two open repetitions could run for ever")
        has_choice_before = False
    return None


def _num_tries(repetition: re.Match[str]) -> int:
    """Returns how many lengths a repetition may have; a fixed number that is repeated counts like a short one."""
    if repetition[0] == "?":
        return 2
    if repetition[0] in "*+":
        return _OPEN_LENGTH
    least = int(repetition["min"] or 0)
    if not repetition["comma"]:
        return 1 if least < 2 else 3
    most = int(repetition["max"]) if repetition["max"] else _OPEN_LENGTH
    return max(min(most, _OPEN_LENGTH) - least + 1, 1)
