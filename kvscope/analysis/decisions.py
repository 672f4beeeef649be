"""What a step decided, as one comparable record: the budget split, preemptions, admissions, and why admission ended.

Block ids, failed attempts and clocks are left out: two runs decide the same where their requests get the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import zip_longest

from kvscope import events as ev


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One step's decisions. Orders are those in which they were taken."""

    scheduled: tuple[tuple[str, int], ...] = ()
    """Requests with their tokens, drafts included."""
    drafts: tuple[tuple[str, int], ...] = ()
    """Requests with how many of their tokens are drafts."""
    preempted: tuple[str, ...] = ()
    admitted: tuple[str, ...] = ()
    """For the first time."""
    resumed: tuple[str, ...] = ()
    hits: tuple[tuple[str, int], ...] = ()
    """Of those admitted or resumed, tokens taken from the prefix cache."""
    stop: str | None = None
    """The test that ended admission; None where the step did not come so far."""

    @property
    def num_scheduled_tokens(self) -> int:
        """Of all requests, drafts included."""
        return sum(num_tokens for _, num_tokens in self.scheduled)


@dataclass(slots=True)
class _Draft:
    scheduled: tuple[tuple[str, int], ...] = ()
    drafts: tuple[tuple[str, int], ...] = ()
    preempted: list[str] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    hits: list[tuple[str, int]] = field(default_factory=list)
    stop: str | None = None


DECISION_KINDS: tuple[type[ev.Event], ...] = (
    ev.RequestPreempted,
    ev.RequestAdmitted,
    ev.RequestResumed,
    ev.AdmissionEnded,
    ev.TokensScheduled,
)
"""The kinds that a decision is made of."""


def decision(events: Sequence[ev.Event], names: Mapping[str, str] | None = None) -> Decision:
    """Returns what the events of a step decided; `names` renames requests (those that it lacks keep their id)."""
    known = names or {}
    made = _Draft()
    for event in events:
        match event:
            case ev.RequestPreempted():
                made.preempted.append(known.get(event.request_id, event.request_id))
            case ev.RequestAdmitted() | ev.RequestResumed():
                request_id = known.get(event.request_id, event.request_id)
                (made.admitted if isinstance(event, ev.RequestAdmitted) else made.resumed).append(request_id)
                made.hits.append((request_id, event.num_hit_tokens))
            case ev.AdmissionEnded():
                made.stop = event.reason
            case ev.TokensScheduled():
                request_ids = [known.get(request_id, request_id) for request_id in event.request_ids]
                made.scheduled = tuple(zip(request_ids, event.num_tokens, strict=True))
                made.drafts = tuple(
                    (known.get(request_id, request_id), len(drafts))
                    for request_id, drafts in event.draft_token_ids.items()
                )
            case _:
                pass
    return Decision(
        scheduled=made.scheduled,
        drafts=made.drafts,
        preempted=tuple(made.preempted),
        admitted=tuple(made.admitted),
        resumed=tuple(made.resumed),
        hits=tuple(made.hits),
        stop=made.stop,
    )


def differing_fields(one: Decision, other: Decision) -> tuple[str, ...]:
    """Returns the names of the fields in which two decisions differ."""
    return tuple(entry.name for entry in fields(Decision) if getattr(one, entry.name) != getattr(other, entry.name))


def first_difference(
    one: Iterator[tuple[int, Decision]], other: Iterator[tuple[int, Decision]]
) -> tuple[int, Decision | None, Decision | None] | None:
    """Returns the first step in which two runs decide differently, with both decisions.

    None stands for a decision where one run has ended and the other goes on; a pair of equal runs has no difference.
    """
    for left, right in zip_longest(one, other):
        if left is None or right is None:
            step = (left or right)[0]
            return step, left and left[1], right and right[1]
        if left[1] != right[1]:
            return left[0], left[1], right[1]
    return None
