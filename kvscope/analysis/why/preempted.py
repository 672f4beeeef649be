"""Why a request was preempted, what that threw away, and whether it goes round in a circle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvscope.analysis.why.journal import StepNote

MIN_CYCLES = 2
"""Resumptions that ended in another preemption, to speak of a cycle."""

VictimReason = Literal["last_admitted", "least_urgent", "least_urgent_first_admitted", "itself"]
"""Why this victim: the last of the running ones (fcfs); the largest (priority, arrival time), or among equals of it the
first in running order (priority); or the request that needed the block was the victim itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A request that ran when the victim was chosen."""

    request_id: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """From one preemption to the next: what coming back cost, and what it brought."""

    preempted_step: int
    resumed_step: int | None
    """None where it never came back (within the recording)."""
    next_preempted_step: int | None
    hit_tokens: int
    own_hit_tokens: int
    recomputed_tokens: int
    """Token positions that it had computed before and that were computed again until the next preemption."""
    steps_run: int
    """Steps from its resumption until the next preemption, or its end."""
    output_tokens_gained: int
    steps_waited: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionStory:
    """One preemption."""

    step: int
    by: str
    """Whose allocation had failed."""
    by_needed_blocks: int | None
    free_blocks: int | None
    """How many were free instead; None where the failed allocation is not recorded."""
    policy: str
    why_this_victim: VictimReason
    running: tuple[Rival, ...]
    """The running requests at that moment, in admission order, the victim included."""
    blocks_freed: int
    blocks_held: int
    tokens_thrown_away: int
    tokens_returned: int
    """Of the step's budget: it had been scheduled already."""
    other_victims: tuple[str, ...]
    """Of the same step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedAnswer:
    """All preemptions of a request, and what became of them. Empty where it was never preempted."""

    preemptions: tuple[PreemptionStory, ...]
    resumptions: tuple[Resumption, ...]
    """One for each preemption."""
    resume_preempt_cycles: int
    """How often it was resumed only to be preempted again."""
    is_in_a_cycle: bool
    """That happened more than once."""
    recomputed_tokens: int
    output_tokens_gained_in_cycles: int
    """Between its resumptions and the preemptions that followed them."""

    @property
    def preempted_steps(self) -> tuple[int, ...]:
        return tuple(story.step for story in self.preemptions)


class PreemptionCollector:
    """Builds the stories from the steps of `journal.walk`, one after another."""

    def __init__(self, request_id: str, policy: str) -> None:
        self._request_id = request_id
        self._policy = policy
        self._stories: list[PreemptionStory] = []
        self._notes: list[StepNote] = []
        self._resumed: dict[int, tuple[int, int]] = {}
        """Hit tokens of each admission, and how many of them its own."""

    def add(self, note: StepNote, rivals: Sequence[Rival], hit_tokens: int, own_hit_tokens: int) -> None:
        """Takes a step. `rivals`: who was running before it; hits: of the request's own admission in it."""
        self._notes.append(note)
        if self._request_id in note.admitted_ids:
            self._resumed[note.step] = (hit_tokens, own_hit_tokens)
        gone: set[str] = set()
        for preemption in note.preemptions:
            event = preemption.event
            running = [rival for rival in rivals if rival.request_id not in gone]
            gone.add(event.request_id)
            if event.request_id != self._request_id:
                continue
            cause = preemption.cause
            self._stories.append(
                PreemptionStory(
                    step=note.step,
                    by=event.beneficiary_id,
                    by_needed_blocks=cause.need_step if cause is not None else None,
                    free_blocks=cause.num_free_blocks if cause is not None else None,
                    policy=self._policy,
                    why_this_victim=self._reason(event.beneficiary_id, running),
                    running=tuple(running),
                    blocks_freed=event.num_freed_blocks,
                    blocks_held=event.num_table_blocks,
                    tokens_thrown_away=event.num_lost_tokens,
                    tokens_returned=event.num_returned_tokens,
                    other_victims=tuple(
                        other.event.request_id
                        for other in note.preemptions
                        if other.event.request_id != self._request_id
                    ),
                )
            )

    def _reason(self, beneficiary_id: str, running: Sequence[Rival]) -> VictimReason:
        if beneficiary_id == self._request_id:
            return "itself"
        if self._policy != "priority":
            return "last_admitted"
        mine = next((rival.priority for rival in running if rival.request_id == self._request_id), 0)
        equals = sum(rival.priority == mine for rival in running)
        return "least_urgent" if equals == 1 else "least_urgent_first_admitted"

    def answer(self) -> PreemptedAnswer:
        """Returns what the steps so far make of it."""
        resumptions = self._resumptions()
        cycles = [r for r in resumptions if r.resumed_step is not None and r.next_preempted_step is not None]
        return PreemptedAnswer(
            preemptions=tuple(self._stories),
            resumptions=tuple(resumptions),
            resume_preempt_cycles=len(cycles),
            is_in_a_cycle=len(cycles) >= MIN_CYCLES,
            recomputed_tokens=sum(r.recomputed_tokens for r in resumptions),
            output_tokens_gained_in_cycles=sum(r.output_tokens_gained for r in cycles),
        )

    def _resumptions(self) -> list[Resumption]:
        """What lies below the most tokens that were ever thrown away is computed again."""
        resumptions: list[Resumption] = []
        stories = self._stories
        for index, story in enumerate(stories):
            end = stories[index + 1].step if index + 1 < len(stories) else None
            mark = max(earlier.tokens_thrown_away for earlier in stories[: index + 1])
            span = [n for n in self._notes if n.step > story.step and (end is None or n.step < end)]
            resumed = next((step for step in self._resumed if step > story.step and (end is None or step < end)), None)
            hit, own = self._resumed[resumed] if resumed is not None else (0, 0)
            run = [n for n in span if resumed is not None and n.step >= resumed]
            recomputed = sum(
                max(min(n.share.num_computed_before + n.share.num_tokens, mark) - n.share.num_computed_before, 0)
                for n in run
                if n.share is not None
            )
            waited_until = resumed if resumed is not None else self._notes[-1].step + 1
            resumptions.append(
                Resumption(
                    preempted_step=story.step,
                    resumed_step=resumed,
                    next_preempted_step=end,
                    hit_tokens=hit,
                    own_hit_tokens=own,
                    recomputed_tokens=recomputed,
                    steps_run=sum(n.is_running for n in run),
                    output_tokens_gained=sum(n.num_sampled for n in run),
                    steps_waited=waited_until - story.step,
                )
            )
        return resumptions
