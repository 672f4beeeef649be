"""What can be typed after `:`, and where it leads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kvscope.errors import UsageError

EXAMPLES = "120  +20  -20  50%  12.5s  req-7  r7  b57  120b57"


class GotoError(UsageError):
    """The text leads nowhere."""


@dataclass(frozen=True, slots=True)
class ToStep:
    """A step of the recording."""

    step: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The step that was under way so many seconds after the engine's start."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ToRequest:
    """A request, by its id."""

    request_id: str
    step: int | None = None
    """Where it is looked at; None: where one is."""


@dataclass(frozen=True, slots=True)
class ToBlock:
    """A block of the pool."""

    block_id: int
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ToNumberedRequest:
    """The request whose id ends in a number."""

    number: int
    step: int | None = None


Goto = ToStep | ToTime | ToRequest | ToNumberedRequest | ToBlock


def parse_goto(text: str, *, step: int, first_step: int, last_step: int, num_blocks: int) -> Goto:
    """Returns where the text leads from `step`. Raises `GotoError` with what is allowed.

    A number is a step, `+n` and `-n` are relative, `n%` is a part of the recording, `n.ns` a time, `bN` a block, `rN`
    the request whose id ends in N; a step may stand before the two (`120b57`). All else is a request's id.
    """
    text = text.strip()
    if not text:
        raise GotoError(f"nowhere to go: type one of {EXAMPLES}")
    if re.fullmatch(r"\d+", text):
        return ToStep(_in_range(int(text), first_step, last_step))
    if re.fullmatch(r"[+-]\d+", text):
        return ToStep(min(max(step + int(text), first_step), last_step))
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text):
        part = float(match[1])
        if part > 100:
            raise GotoError(f"{text} is beyond the end: 0% to 100%")
        return ToStep(first_step + round((last_step - first_step) * part / 100))
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*s", text):
        return ToTime(float(match[1]))
    if match := re.fullmatch(r"(\d+)?\s*(b(?:lock\s*)?|r)(\d+)", text):
        at = None if match[1] is None else _in_range(int(match[1]), first_step, last_step)
        number = int(match[3])
        if match[2] == "r":
            return ToNumberedRequest(number, at)
        if number >= num_blocks:
            raise GotoError(f"there is no block {number}: the pool has 0 to {num_blocks - 1}")
        return ToBlock(number, at)
    return ToRequest(text)


def _in_range(step: int, first_step: int, last_step: int) -> int:
    if not first_step <= step <= last_step:
        raise GotoError(f"there is no step {step}: the recording has {first_step} to {last_step}")
    return step


def numbered(request_ids: Iterable[str], number: int) -> str:
    """Returns the one request whose id ends in a number. Raises `GotoError` where there is none or several."""
    ending = re.compile(rf"(?:^|\D)0*{number}$")
    found = [request_id for request_id in request_ids if ending.search(request_id)]
    if not found:
        raise GotoError(f"there is no request whose id ends in {number}")
    if len(found) > 1:
        raise GotoError(f"{len(found)} requests end in {number}, e.g. {found[0]!r} and {found[1]!r}: type the whole id")
    return found[0]
