"""One request's life, step by step: what it got, who shared its steps, how the queues stood when admission stopped.

The one pass over the steps that every answer about the request is made from. "At step N" means what the waiting loop of
step N saw when it stopped: finishes later in the step have not given their blocks back yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kvscope import events as ev
from kvscope.analysis.memory import remembered
from kvscope.analysis.step_facts import StepFacts, StepShare
from kvscope.replay.timeline import Moment, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A preemption, and the failed allocation that led to it (None where none is recorded)."""

    event: ev.RequestPreempted
    cause: ev.AllocationFailed | None


@dataclass(slots=True, kw_only=True)
class StepNote:
    """One step of the life, without the state it left."""

    step: int
    token_budget: int
    start_ns: int | None
    """None in runs without a clock."""
    end_ns: int | None
    forward_ns: int
    share: StepShare | None
    """What the request got."""
    num_sampled: int
    """Tokens that it sampled."""
    is_running: bool
    """It was running when admission stopped."""
    is_waiting: bool
    prefill_tokens: dict[str, int]
    """By request, its own included: prompt tokens (or tokens computed again) in this step."""
    num_scheduled_tokens: int
    num_decoding: int
    stop: ev.QueueTest | None
    """Why admission stopped; None where it never began."""
    blocked: ev.RequestBlocked | None
    token_budget_left: int
    preemptions: list[Preemption]
    running_before: tuple[str, ...]
    """The running requests when the step was scheduled, in admission order; only where somebody was preempted."""
    admitted_ids: list[str]
    finished_ids: list[str]
    aborted_ids: list[str]
    """Before the step."""
    aborted_mid_ids: list[str]
    num_freed_late: int
    """Blocks given back after admission had stopped: free in the next step."""


@dataclass(slots=True)
class Queues:
    """Both queues when a step's admission stopped."""

    running: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def note(self, event: ev.Event) -> None:
        """Follows one event."""
        match event:
            case ev.RequestArrived():
                self.waiting.insert(event.queue_position, event.request_id)
            case ev.RequestAborted():
                (self.running if event.status == "RUNNING" else self.waiting).remove(event.request_id)
            case ev.RequestPreempted():
                self.running.remove(event.request_id)
                self.waiting.insert(event.queue_position, event.request_id)
            case ev.RequestAdmitted() | ev.RequestResumed():
                self.waiting.remove(event.request_id)
                self.running.append(event.request_id)
            case ev.RequestFinished():
                self.running.remove(event.request_id)
            case _:
                pass


def walk(
    timeline: Timeline, request_id: str, first_step: int, last_step: int
) -> Iterator[tuple[StepNote, Queues, Moment]]:
    """Yields the steps of a range; queues and moment are valid until the next one is asked for."""
    queues = Queues()
    if first_step > timeline.first_step:
        before = timeline.at(first_step - 1).state
        queues = Queues(list(before.running), list(before.waiting))
    for step in range(first_step, last_step + 1):
        moment = timeline.at(step)
        running_before = list(queues.running)
        at_stop = _queues_at_stop(queues, moment)
        facts = remembered(timeline).facts(moment)
        yield _note(request_id, moment, facts, at_stop, running_before), at_stop, moment
        queues = Queues(list(moment.state.running), list(moment.state.waiting))


def _queues_at_stop(before: Queues, moment: Moment) -> Queues:
    for event in moment.events:
        if isinstance(event, ev.TokensScheduled):
            break
        before.note(event)
    return before


def _note(request_id: str, moment: Moment, facts: StepFacts, queues: Queues, running_before: Sequence[str]) -> StepNote:
    share = facts.shares.get(request_id)
    ended = facts.admission_ended
    start_ns, end_ns = _clock(facts)
    happened = _Happened(moment.events)
    return StepNote(
        step=moment.step,
        token_budget=facts.token_budget,
        start_ns=start_ns,
        end_ns=end_ns,
        forward_ns=facts.finished.forward_ns if facts.finished is not None else 0,
        share=share,
        num_sampled=_num_sampled(request_id, moment.events),
        is_running=share is not None or request_id in queues.running,
        is_waiting=share is None and request_id in queues.waiting,
        prefill_tokens={key: part.num_tokens for key, part in facts.shares.items() if part.is_prefill},
        num_scheduled_tokens=facts.num_scheduled_tokens,
        num_decoding=sum(not part.is_prefill for part in facts.shares.values()),
        stop=ended.reason if ended is not None else None,
        blocked=facts.blocked,
        token_budget_left=ended.token_budget_left if ended is not None else 0,
        preemptions=happened.preemptions,
        running_before=tuple(key for key in running_before if key not in happened.aborted_ids)
        if happened.preemptions
        else (),
        admitted_ids=happened.admitted_ids,
        finished_ids=happened.finished_ids,
        aborted_ids=happened.aborted_ids,
        aborted_mid_ids=happened.aborted_mid_ids,
        num_freed_late=sum(len(r.freed_to_head) + len(r.freed_to_tail) for r in facts.late_releases),
    )


class _Happened:
    """Who came and went in a step, in order."""

    def __init__(self, events: Sequence[ev.Event]) -> None:
        self.preemptions: list[Preemption] = []
        self.admitted_ids: list[str] = []
        self.finished_ids: list[str] = []
        self.aborted_ids: list[str] = []
        self.aborted_mid_ids: list[str] = []
        failed: ev.AllocationFailed | None = None
        for event in events:
            match event:
                case ev.AllocationFailed():
                    failed = event
                case ev.RequestPreempted():
                    cause = failed if failed is not None and failed.request_id == event.beneficiary_id else None
                    self.preemptions.append(Preemption(event=event, cause=cause))
                case ev.RequestAdmitted() | ev.RequestResumed():
                    self.admitted_ids.append(event.request_id)
                case ev.RequestFinished():
                    self.finished_ids.append(event.request_id)
                case ev.RequestAborted():
                    (self.aborted_mid_ids if event.during_execution else self.aborted_ids).append(event.request_id)
                case _:
                    pass


def _num_sampled(request_id: str, events: Sequence[ev.Event]) -> int:
    for event in events:
        if isinstance(event, ev.TokensSampled) and request_id in event.request_ids:
            return 1 if event.num_tokens is None else event.num_tokens[event.request_ids.index(request_id)]
    return 0


def _clock(facts: StepFacts) -> tuple[int | None, int | None]:
    """Returns when the step began and when its tokens were there; None where the run has no clock."""
    started, finished = facts.started, facts.finished
    if started is None or finished is None:
        return None, None
    duration = finished.schedule_ns + finished.forward_ns + finished.sample_ns + finished.update_ns
    if not started.time_ns and not duration:
        return None, None
    return started.time_ns, started.time_ns + duration


def num_sampled_by(events: Sequence[ev.Event], request_ids: set[str]) -> int:
    """Returns how many tokens these requests sampled in the step."""
    for event in events:
        if isinstance(event, ev.TokensSampled):
            counts = event.num_tokens if event.num_tokens is not None else (1,) * len(event.request_ids)
            return sum(n for key, n in zip(event.request_ids, counts, strict=True) if key in request_ids)
    return 0
