"""What a request did in each step: waited, computed, got nothing, was preempted, ended. Read off the steps' events.

`LifeIndex` keeps a small record of every step that it was shown, so that any request's line over them costs a lookup a
step. It knows no rule of scheduling.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kvscope import events as ev
from kvscope.replay.timeline import RequestRow
from kvscope.tui.view.glyphs import Glyphs

Deed = Literal["prefill", "decode", "waits", "nothing", "preempted", "finished", "absent", "unknown"]

STRENGTH: dict[Deed, int] = {
    "unknown": 0,
    "absent": 1,
    "waits": 2,
    "decode": 3,
    "nothing": 4,
    "prefill": 5,
    "finished": 6,
    "preempted": 7,
}
"""Which deed a column of several steps shows: the strongest."""

ROLES: dict[Deed, str] = {
    "unknown": "dim",
    "absent": "dim",
    "waits": "dim",
    "decode": "decode",
    "nothing": "bad",
    "prefill": "prefill",
    "finished": "text",
    "preempted": "preempted",
}

MAX_STEPS_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class StepDeeds:
    """Who did what in one step."""

    scheduled: dict[str, Deed]
    entered: frozenset[str]
    """Came into the waiting queue, by arriving."""
    admitted: frozenset[str]
    preempted: frozenset[str]
    ended: frozenset[str]


def step_deeds(events: Iterable[ev.Event]) -> StepDeeds:
    """Reads off one step's events what each request did."""
    scheduled: dict[str, Deed] = {}
    entered, admitted, preempted, ended = set[str](), set[str](), set[str](), set[str]()
    for event in events:
        match event:
            case ev.TokensScheduled():
                drafts = event.draft_token_ids
                for request_id, num_tokens in zip(event.request_ids, event.num_tokens, strict=True):
                    num_own = num_tokens - len(drafts.get(request_id, ()))
                    scheduled[request_id] = "prefill" if num_own > 1 or request_id in admitted else "decode"
            case ev.RequestArrived():
                entered.add(event.request_id)
            case ev.RequestAdmitted() | ev.RequestResumed():
                admitted.add(event.request_id)
            case ev.RequestPreempted():
                preempted.add(event.request_id)
            case ev.RequestFinished() | ev.RequestAborted():
                ended.add(event.request_id)
            case _:
                pass
    return StepDeeds(scheduled, frozenset(entered), frozenset(admitted), frozenset(preempted), frozenset(ended))


class LifeIndex:
    """The deeds of the steps seen so far, the latest used ones kept."""

    def __init__(self) -> None:
        self._steps: OrderedDict[int, StepDeeds] = OrderedDict()

    def add(self, step: int, events: Iterable[ev.Event]) -> None:
        if step in self._steps:
            return
        self._steps[step] = step_deeds(events)
        if len(self._steps) > MAX_STEPS_KEPT:
            self._steps.popitem(last=False)

    def first_missing(self, first_step: int, last_step: int) -> int | None:
        """Returns the first step of the range that has not been added, None where none lacks."""
        return next((step for step in range(first_step, last_step + 1) if step not in self._steps), None)

    def deeds(self, row: RequestRow, first_step: int, last_step: int) -> list[Deed]:
        """Returns what the request did in each step of the range; "unknown" where a step has not been added."""
        return [deed for _, deed in self._walk(row, first_step, last_step)]

    def _walk(self, row: RequestRow, first_step: int, last_step: int) -> Iterable[tuple[int, Deed]]:
        is_running = self._is_running_before(row, first_step, last_step)
        request_id = row.request_id
        end = row.finished_step
        for step in range(first_step, last_step + 1):
            deeds = self._steps.get(step)
            deed: Deed
            if step < row.arrival_step or (end is not None and step > end):
                deed = "absent"
            elif deeds is None:
                deed = "unknown"
            elif request_id in deeds.ended:
                deed = "finished"
            elif request_id in deeds.preempted:
                deed, is_running = "preempted", False
            elif request_id in deeds.scheduled:
                deed, is_running = deeds.scheduled[request_id], True
            else:
                deed = "nothing" if is_running else "waits"
            yield step, deed

    def _is_running_before(self, row: RequestRow, first_step: int, last_step: int) -> bool:
        """Infers from the first thing that happens to the request in the range whether it ran before it."""
        if first_step <= row.arrival_step or row.first_admitted_step is None or first_step <= row.first_admitted_step:
            return False
        for step in range(first_step, last_step + 1):
            deeds = self._steps.get(step)
            if deeds is None:
                continue
            if row.request_id in deeds.admitted:
                return False
            if row.request_id in deeds.scheduled or row.request_id in deeds.preempted:
                return True
        return False


def coarse_deeds(row: RequestRow, first_step: int, last_step: int) -> list[Deed]:
    """As `LifeIndex.deeds`, from the request's row alone: for ranges too long to read step by step."""
    admitted, end = row.first_admitted_step, row.finished_step
    deeds: list[Deed] = []
    for step in range(first_step, last_step + 1):
        if step < row.arrival_step or (end is not None and step > end):
            deeds.append("absent")
        elif step == end:
            deeds.append("finished")
        elif admitted is None or step < admitted:
            deeds.append("waits")
        elif row.first_token_step is None or step <= row.first_token_step:
            deeds.append("prefill")
        else:
            deeds.append("decode")
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
        "unknown": " ",
        "absent": " ",
        "waits": glyphs.life_waits,
        "decode": glyphs.life_decode,
        "nothing": glyphs.life_nothing,
        "prefill": glyphs.life_prefill,
        "finished": glyphs.mark_finished,
        "preempted": glyphs.mark_preempted,
    }
    return "".join(chars[deed] for deed in deeds), [ROLES[deed] for deed in deeds]
