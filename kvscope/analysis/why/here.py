"""Why a request waits at the step that is looked at: what can be said at once, without moving the timeline.

Behind the head it is the head that was tested and refused, so tests, holders and need are the head's. What would have
helped takes runs of the step under other settings: `kvscope.analysis.why.instant.step_changes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope import events as ev
from kvscope.analysis.memory import remembered
from kvscope.analysis.recorded_settings import scheduler_config
from kvscope.analysis.verdicts import verdicts
from kvscope.analysis.why.changes import Change
from kvscope.analysis.why.instant import (
    AdmissionTest,
    Capacity,
    Holder,
    admission_tests,
    capacity,
    holders,
    step_changes,
)
from kvscope.analysis.why.journal import Queues
from kvscope.analysis.why.wait_records import WaitStep
from kvscope.analysis.why.waiting import wait_step
from kvscope.events import QueueTest
from kvscope.replay.timeline import Moment, Timeline

MAX_JUDGED_BEHIND = 32
"""Requests behind the head that are judged: each costs a look into the prefix cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest:
    """What a waiting request is, apart from the step's verdict."""

    request_id: str
    arrival_step: int
    waiting_since_step: int
    num_tokens: int
    num_prompt_tokens: int
    num_preemptions: int
    hit_tokens: int
    free_hit_blocks: int
    """Hit blocks that lie in the free queue: each costs a free block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingHere:
    """A waiting request and the head of its queue (itself, where it is first), when admission stopped."""

    asked: WaitingRequest
    asked_row: WaitStep
    head: WaitingRequest
    row: WaitStep
    """Of the head."""
    tests: tuple[AdmissionTest, ...]
    """Of the head, without its place in the queue."""
    held_by: tuple[Holder, ...]
    capacity: Capacity
    """Of the head."""
    victims: tuple[str, ...]
    """Preempted in this step, in order."""
    token_budget: int

    @property
    def is_head(self) -> bool:
        return self.asked.request_id == self.head.request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What would have changed the answer in this step."""

    head_changes: tuple[Change, ...]
    """That admit the head; empty where the step cannot be run again."""
    changes: tuple[Change, ...]
    """That admit the asked request where it is not the head."""
    is_enough: dict[str, bool | None]
    """By running request: had it ended before the step, the head would have been admitted."""


def waiting_here(timeline: Timeline, moment: Moment, request_id: str) -> WaitingHere | None:
    """Returns the figures of a request that waits after the step, None for any other."""
    state = moment.state
    if state.config is None or request_id not in state.waiting:
        return None
    facts = remembered(timeline).facts(moment)
    queues = queues_at_stop(timeline, moment)
    head_id = queues.waiting[0]
    rows = {row.request_id: row for row in verdicts(timeline, moment, 0, MAX_JUDGED_BEHIND + 1)}
    if request_id not in rows:
        place = state.waiting.index(request_id)
        rows |= {row.request_id: row for row in verdicts(timeline, moment, place, 1)}
    head_row = wait_step(timeline, moment, queues, head_id, rows, lower=(), equal=())
    asked_row = head_row
    if head_id != request_id:
        asked_row = wait_step(timeline, moment, queues, request_id, rows, lower=(), equal=())
    head = state.requests[head_id]
    tests = admission_tests(timeline, moment, head, queues)
    lookup = next((test for test in tests if test.name == "prefix_lookup"), None)
    return WaitingHere(
        asked=_request(moment, request_id, lookup if head_id == request_id else None),
        asked_row=asked_row,
        head=_request(moment, head_id, lookup),
        row=head_row,
        tests=tuple(test for test in tests if test.name != "at_the_head"),
        held_by=holders(timeline, moment, queues, None),
        capacity=capacity(scheduler_config(state.config), state, head),
        victims=tuple(facts.preempted_ids),
        token_budget=facts.token_budget,
    )


def _request(moment: Moment, request_id: str, lookup: AdmissionTest | None) -> WaitingRequest:
    request = moment.state.requests[request_id]
    return WaitingRequest(
        request_id=request_id,
        arrival_step=request.arrival_step,
        waiting_since_step=request.waiting_since_step,
        num_tokens=request.num_tokens,
        num_prompt_tokens=request.num_prompt_tokens,
        num_preemptions=request.num_preemptions,
        hit_tokens=lookup.have if lookup is not None else 0,
        free_hit_blocks=lookup.free_hit_blocks if lookup is not None else 0,
    )


def queues_at_stop(timeline: Timeline, moment: Moment) -> Queues:
    """Returns the queues when admission stopped, from the state after the step: who ended later stands last."""
    facts = remembered(timeline).facts(moment)
    state = moment.state
    waiting = list(state.waiting)
    waiting += [
        event.request_id
        for event in moment.events
        if isinstance(event, ev.RequestAborted) and event.during_execution and event.status != "RUNNING"
    ]
    return Queues([*state.running, *facts.late_ends], waiting)


def outlook(timeline: Timeline, step: int, request_id: str) -> Outlook | None:
    """Runs the step again under other settings; None where the request does not wait in it. Moves the timeline."""
    moment = timeline.at(step)
    if request_id not in moment.state.waiting:
        return None
    head_id = queues_at_stop(timeline, moment).waiting[0]
    rerun, head_changes = step_changes(timeline, step, head_id)
    changes = step_changes(timeline, step, request_id)[1] if head_id != request_id else ()
    moment = timeline.at(step)
    found = holders(timeline, moment, queues_at_stop(timeline, moment), rerun)
    return Outlook(
        head_changes=head_changes,
        changes=changes,
        is_enough={holder.request_id: holder.is_enough for holder in found},
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a step's admission stopped, and who was tried last."""

    reason: QueueTest
    request_id: str | None


class Refusals:
    """The refusals of the steps seen so far, read once each."""

    def __init__(self) -> None:
        self._steps: dict[int, Refusal | None] = {}

    def __getitem__(self, step: int) -> Refusal | None:
        return self._steps.get(step)

    def read(self, timeline: Timeline, first_step: int, last_step: int) -> None:
        """Reads what is missing of a range of steps."""
        missing = [step for step in range(first_step, last_step + 1) if step not in self._steps]
        if not missing:
            return
        for step, events in timeline.select_events((ev.AdmissionEnded, ev.RequestBlocked), missing[0], missing[-1]):
            reason: QueueTest | None = None
            blocked: str | None = None
            for event in events:
                if isinstance(event, ev.AdmissionEnded):
                    reason = event.reason
                elif isinstance(event, ev.RequestBlocked):
                    blocked = event.request_id
            self._steps[step] = None if reason is None else Refusal(reason, blocked)

    def same_since(self, step: int, first_step: int) -> int:
        """Returns the first step of the stretch on end with the step's refusal, not before `first_step`."""
        refusal = self[step]
        while step > first_step and self[step - 1] == refusal:
            step -= 1
        return step
