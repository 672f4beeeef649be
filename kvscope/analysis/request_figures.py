"""One request of a run as figures: its admissions, its tokens, and what preemptions cost it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Admission:
    """One time that a request left the waiting queue."""

    step: int
    num_tokens: int
    """All its tokens then: what the prefix cache was asked for."""
    num_hit_tokens: int
    num_own_hit_tokens: int
    """Of these, tokens in blocks that the request itself had computed before it was preempted."""


@dataclass(slots=True)
class RequestFigures:
    """One request over the whole run. Steps are step numbers, None where it has not happened."""

    request_id: str
    arrival_step: int
    num_prompt_tokens: int
    max_tokens: int
    priority: int
    cache_salt: str | None
    lora_name: str | None
    arrival_ns: int
    template_ns: int
    tokenize_ns: int
    admissions: list[Admission] = field(default_factory=list)
    preempted_steps: list[int] = field(default_factory=list)
    token_steps: array[int] = field(default_factory=lambda: array("q"))
    """The step of each output token."""
    num_lost_tokens: int = 0
    """Computed tokens that its preemptions threw away."""
    num_recomputed_tokens: int = 0
    """Of these, tokens that were computed a second time."""
    finished_step: int | None = None
    finish_reason: str | None = None
    num_computed_tokens: int = 0
    high_water: int = 0
    """Most tokens that were computed before a preemption."""

    @property
    def num_tokens(self) -> int:
        """Prompt and output, at the end of the run."""
        return self.num_prompt_tokens + len(self.token_steps)

    @property
    def first_admitted_step(self) -> int | None:
        return self.admissions[0].step if self.admissions else None

    @property
    def first_token_step(self) -> int | None:
        return self.token_steps[0] if self.token_steps else None

    @property
    def num_hit_tokens(self) -> int:
        """Of all its admissions."""
        return sum(admission.num_hit_tokens for admission in self.admissions)

    @property
    def num_own_hit_tokens(self) -> int:
        """Of `num_hit_tokens`, in blocks that it had computed itself before it was preempted."""
        return sum(admission.num_own_hit_tokens for admission in self.admissions)
