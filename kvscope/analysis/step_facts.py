"""What a step's events say together: who got how many tokens, what the pool was when admission stopped.

`Moment.state` is the state after the whole step. The waiting loop judged an earlier one: between it and the end of the
step lie finishes and aborts that gave blocks back. Both follow from the events, without a second fold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kvscope import events as ev
from kvscope.replay.timeline import Moment
from kvscope.state import EngineState


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShare:
    """What one request got of a step's budget."""

    request_id: str
    num_tokens: int
    """Drafts included."""
    num_draft_tokens: int
    is_prefill: bool
    """It computes tokens that existed at its admission."""
    num_computed_before: int


@dataclass(slots=True)
class StepFacts:
    """A step's events, sorted by what readers ask of them. Built once for a moment, in one pass."""

    step: int
    shares: dict[str, StepShare] = field(default_factory=dict)
    """By request, in scheduling order."""
    token_budget: int = 0
    started: ev.StepStarted | None = None
    finished: ev.StepFinished | None = None
    failed: ev.StepFailed | None = None
    admission_ended: ev.AdmissionEnded | None = None
    blocked: ev.RequestBlocked | None = None
    lookups: dict[str, ev.PrefixLookedUp] = field(default_factory=dict)
    preemptions: list[ev.RequestPreempted] = field(default_factory=list)
    num_new_blocks: Counter[str] = field(default_factory=Counter)
    """Blocks allocated in the step, by request."""
    late_releases: list[ev.BlockReleased] = field(default_factory=list)
    """Blocks given back after `schedule()` had ended: by finishes, and aborts during the execution."""
    late_ends: list[str] = field(default_factory=list)
    """Requests that were running when `schedule()` ended and are not any more."""
    num_late_ends: int = 0
    """The same with those that waited."""
    admitted_ids: set[str] = field(default_factory=set)
    """Admitted or resumed in this step."""

    @property
    def num_scheduled_tokens(self) -> int:
        """Of all requests, drafts included."""
        return sum(share.num_tokens for share in self.shares.values())

    @property
    def preempted_ids(self) -> list[str]:
        """Victims of this step, in order."""
        return [preemption.request_id for preemption in self.preemptions]


def step_facts(moment: Moment) -> StepFacts:
    """Sorts the events of a step."""
    facts = StepFacts(step=moment.step)
    scheduled: ev.TokensScheduled | None = None
    rolled_back: dict[str, int] = {}
    for event in moment.events:
        match event:
            case ev.StepStarted():
                facts.started = event
                facts.token_budget = event.token_budget
            case ev.PrefixLookedUp():
                facts.lookups[event.request_id] = event
            case ev.RequestBlocked():
                facts.blocked = event
            case ev.AdmissionEnded():
                facts.admission_ended = event
            case ev.RequestPreempted():
                facts.preemptions.append(event)
            case ev.BlockAllocated():
                facts.num_new_blocks[event.request_id] += len(event.block_ids)
            case ev.TokensScheduled():
                scheduled = event
            case ev.BlockReleased() if scheduled is not None:
                facts.late_releases.append(event)
            case ev.RequestAdmitted() | ev.RequestResumed():
                facts.admitted_ids.add(event.request_id)
            case ev.RequestFinished():
                facts.late_ends.append(event.request_id)
                facts.num_late_ends += 1
            case ev.RequestAborted() if event.during_execution:
                facts.num_late_ends += 1
                if event.status == "RUNNING":
                    facts.late_ends.append(event.request_id)
            case ev.DraftsVerified():
                rolled_back[event.request_id] = event.num_rolled_back
            case ev.StepFinished():
                facts.finished = event
            case ev.StepFailed():
                facts.failed = event
            case _:
                pass
    if scheduled is not None:
        facts.shares = _shares(moment, scheduled, rolled_back)
    return facts


def _shares(moment: Moment, scheduled: ev.TokensScheduled, rolled_back: dict[str, int]) -> dict[str, StepShare]:
    requests = moment.state.requests
    shares: dict[str, StepShare] = {}
    for request_id, num_tokens in zip(scheduled.request_ids, scheduled.num_tokens, strict=True):
        request = requests[request_id]
        before = request.num_computed_tokens + rolled_back.get(request_id, 0) - num_tokens
        shares[request_id] = StepShare(
            request_id=request_id,
            num_tokens=num_tokens,
            num_draft_tokens=len(scheduled.draft_token_ids.get(request_id, ())),
            is_prefill=before < request.num_prefill_tokens,
            num_computed_before=before,
        )
    return shares


def setting(state: EngineState, name: str) -> object:
    """Returns a recorded scheduler setting; None where there is none of that name."""
    return None if state.config is None else state.config.settings.get(name)
