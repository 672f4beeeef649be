"""What a request did in each step, as glyphs on a time axis: waited, computed, got nothing, was preempted, ended.

The turning points come from the request's own events, which are few. Which of its running steps gave it no token stands
in every step's events, which are many: `ScheduledIndex` keeps of each step that it was shown who was scheduled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Literal

from kvscope import events as ev
from kvscope.analysis.history import Turn, TurningKind
from kvscope.tui.view.glyphs import Glyphs

Deed = Literal["absent", "waits", "decode", "nothing", "prefill", "finished", "aborted", "preempted"]

STRENGTH: dict[Deed, int] = {
    "absent": 0,
    "waits": 1,
    "decode": 2,
    "nothing": 3,
    "prefill": 4,
    "finished": 5,
    "aborted": 5,
    "preempted": 6,
}
"""Which deed a column of several steps shows: the strongest."""

ROLES: dict[Deed, str] = {
    "absent": "dim",
    "waits": "dim",
    "decode": "decode",
    "nothing": "bad",
    "prefill": "prefill",
    "finished": "text",
    "aborted": "bad",
    "preempted": "preempted",
}

FIRST_DEED: dict[TurningKind, Deed] = {
    "arrived": "waits",
    "admitted": "prefill",
    "decoding": "decode",
    "preempted": "preempted",
    "ended": "finished",
    "aborted": "aborted",
}
LATER_DEED: dict[TurningKind, Deed] = {
    "arrived": "waits",
    "admitted": "prefill",
    "decoding": "decode",
    "preempted": "waits",
    "ended": "absent",
    "aborted": "absent",
}

MAX_STEPS_KEPT = 20_000


class ScheduledIndex:
    """Who was scheduled in which step, of the steps seen so far; the oldest are forgotten."""

    def __init__(self) -> None:
        self._steps: OrderedDict[int, frozenset[str]] = OrderedDict()

    def add(self, step: int, events: Iterable[ev.Event]) -> None:
        if step in self._steps:
            return
        scheduled = (event.request_ids for event in events if isinstance(event, ev.TokensScheduled))
        self._steps[step] = frozenset(request_id for request_ids in scheduled for request_id in request_ids)
        if len(self._steps) > MAX_STEPS_KEPT:
            self._steps.popitem(last=False)

    def first_missing(self, first_step: int, last_step: int) -> int | None:
        """Returns the first step of the range that has not been added, None where none lacks."""
        return next((step for step in range(first_step, last_step + 1) if step not in self._steps), None)

    def is_known_idle(self, step: int, request_id: str) -> bool:
        """True where the step is known not to have scheduled the request."""
        scheduled = self._steps.get(step)
        return scheduled is not None and request_id not in scheduled


def deeds_of(
    turns: Sequence[Turn], scheduled: ScheduledIndex, request_id: str, first_step: int, last_step: int
) -> list[Deed]:
    """Returns what the request did in each step of the range."""
    deeds: list[Deed] = []
    place = -1
    for step in range(first_step, last_step + 1):
        while place + 1 < len(turns) and turns[place + 1].step <= step:
            place += 1
        if place < 0:
            deeds.append("absent")
            continue
        turn = turns[place]
        deed = FIRST_DEED[turn.kind] if turn.step == step else LATER_DEED[turn.kind]
        if deed in ("prefill", "decode") and scheduled.is_known_idle(step, request_id):
            deed = "nothing"
        deeds.append(deed)
    return deeds


def sampled_deeds(turns: Sequence[Turn], first_step: int, last_step: int, steps_per_column: int) -> list[Deed]:
    """Returns a deed for each column of a long range by the turns alone: the strongest that begins in it, else what
    goes on."""
    deeds: list[Deed] = []
    place = -1
    for start in range(first_step, last_step + 1, steps_per_column):
        found: list[Deed] = [LATER_DEED[turns[place].kind] if place >= 0 else "absent"]
        while place + 1 < len(turns) and turns[place + 1].step < start + steps_per_column:
            place += 1
            found.append(FIRST_DEED[turns[place].kind])
        deeds.append(max(found, key=STRENGTH.__getitem__))
    return deeds


def by_column(deeds: Sequence[Deed], steps_per_column: int) -> list[Deed]:
    """Joins the deeds of several steps into one of a column: the strongest."""
    return [
        max(deeds[start : start + steps_per_column], key=STRENGTH.__getitem__)
        for start in range(0, len(deeds), steps_per_column)
    ]


def life_glyphs(deeds: Sequence[Deed], glyphs: Glyphs) -> tuple[str, list[str]]:
    """Returns a glyph and a role for each deed."""
    chars: dict[Deed, str] = {
        "absent": " ",
        "waits": glyphs.life_waits,
        "decode": glyphs.life_decode,
        "nothing": glyphs.life_nothing,
        "prefill": glyphs.life_prefill,
        "finished": glyphs.mark_finished,
        "aborted": glyphs.mark_aborted,
        "preempted": glyphs.mark_preempted,
    }
    return "".join(chars[deed] for deed in deeds), [ROLES[deed] for deed in deeds]
