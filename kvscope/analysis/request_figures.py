"""One request of a run as figures: its admissions, its tokens, and what preemptions cost it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field


class TokenSteps:
    """The step of each output token, in order. Steps on end with one token each are stored as two numbers."""

    __slots__ = ("_firsts", "_lengths")

    def __init__(self) -> None:
        self._firsts: array[int] = array("q")
        self._lengths: array[int] = array("q")

    def append(self, step: int, num_steps: int = 1) -> None:
        """Adds a token for each of so many steps, from this one on."""
        if self._firsts and step == self._firsts[-1] + self._lengths[-1]:
            self._lengths[-1] += num_steps
        else:
            self._firsts.append(step)
            self._lengths.append(num_steps)

    def __len__(self) -> int:
        return sum(self._lengths)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[int]:
        for first, length in self.stretches():
            yield from range(first, first + length)

    @property
    def first(self) -> int | None:
        """The step of the first token."""
        return self._firsts[0] if self._firsts else None

    def stretches(self) -> Iterator[tuple[int, int]]:
        """Yields `(first step, number of steps)`; several tokens of one step are a stretch of length 1 each."""
        return zip(self._firsts, self._lengths, strict=True)


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
    token_steps: TokenSteps = field(default_factory=TokenSteps)
    num_output_tokens: int = 0
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
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def first_admitted_step(self) -> int | None:
        return self.admissions[0].step if self.admissions else None

    @property
    def first_token_step(self) -> int | None:
        return self.token_steps.first

    @property
    def num_hit_tokens(self) -> int:
        """Of all its admissions."""
        return sum(admission.num_hit_tokens for admission in self.admissions)

    @property
    def num_own_hit_tokens(self) -> int:
        """Of `num_hit_tokens`, in blocks that it had computed itself before it was preempted."""
        return sum(admission.num_own_hit_tokens for admission in self.admissions)
