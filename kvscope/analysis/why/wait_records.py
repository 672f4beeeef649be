"""What is told of a request's waits: each wait, its stretches, its steps, and what let it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvscope.events import QueueTest


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStep:
    """The request in the queue when the admission of a step stopped. Blocks unless a name says otherwise."""

    step: int
    position: int
    """0 is the head."""
    head_id: str
    stop: QueueTest | None
    """Why admission stopped: the test that the head failed."""
    head_need: int
    """Recorded figures of that test, in its units: tokens, sequences or blocks."""
    head_have: int
    head_watermark: int
    reason: QueueTest | None
    """The first test that the request itself fails; None where it would have been admitted had it been the head."""
    need: int | None
    """Free blocks that its admission takes: hits in use cost none, hits in the free queue one each."""
    free: int
    watermark: int
    missing: int
    """How many blocks short it is; 0 where blocks are not the matter."""
    token_budget_left: int
    running: tuple[str, ...]
    max_num_seqs: int
    held_by: dict[str, int]
    """Blocks in the tables of the running requests; shared ones count for each holder."""
    ahead: tuple[str, ...]
    needs_behind: dict[str, int | None]
    """What those behind it need, in queue order; of the first `MAX_BEHIND` of them."""
    num_behind: int
    fit_alone: tuple[str, ...]
    """Those behind it that would have been admitted, each alone, had it stood at the head."""
    failed_behind: dict[str, QueueTest]
    """The first test that each of the others behind it fails."""
    running_with_lower_priority: tuple[str, ...]
    """Larger number."""
    running_with_equal_priority: tuple[str, ...]
    scheduled_tokens: dict[str, int]
    """Who got how much of the step's budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps on end in which the same head failed the same test; figures in the units of the test."""

    first_step: int
    last_step: int
    reason: QueueTest | None
    head_id: str
    is_head: bool
    """The request itself was the head."""
    need: tuple[int, int]
    """Smallest and largest of the stretch."""
    have: tuple[int, int]
    watermark_blocks: int

    @property
    def num_steps(self) -> int:
        return self.last_step - self.first_step + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LetIn:
    """What changed between the last refusal and the admission."""

    step: int
    """Of the last refusal; what is listed happened after its admission had stopped, or before the next one's."""
    reason: QueueTest | None
    """The test of the last refusal."""
    finished: tuple[str, ...]
    aborted: tuple[str, ...]
    admitted_before: tuple[str, ...]
    """Who had been ahead of it and was admitted in the same step."""
    freed_blocks: int
    free_before_admission: int
    """Free blocks when its turn came."""
    taken_blocks: int
    """Free blocks that its admission took."""
    token_budget_left: int
    """Of its admission step, before it was scheduled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """Who of lower priority ran while the request waited (smaller numbers are more urgent)."""

    steps: tuple[int, ...]
    request_ids: tuple[str, ...]
    priorities: tuple[int, ...]
    """Of each of them."""
    sampled_tokens: int
    """What they sampled in these steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One stay in the waiting queue."""

    kind: Literal["arrived", "preempted"]
    since_step: int
    last_step: int
    """The last step in which it was still waiting when admission stopped."""
    waited_steps: int
    ended: Literal["admitted", "resumed", "aborted"] | None
    """None where it still waits at the end of the recording."""
    ended_step: int | None
    let_in_by: LetIn | None
    stretches: tuple[Stretch, ...]
    steps: tuple[WaitStep, ...]
    steps_left_out: int
    fitted_behind: dict[str, tuple[int, ...]]
    """Who behind it would have been admitted at the head, in which steps (of those that are told one by one).

    Steps that preempted are not counted: they admit no one."""
    lower_priority_ran: Overtaken
    overtaken_by: tuple[str, ...]
    """Who arrived later and was admitted for the first time during the wait."""
