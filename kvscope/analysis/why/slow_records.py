"""What is told of a request's time: its first token, the gaps between its tokens, whose prefill shared its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Basis = Literal["median_decode_step", "share_of_tokens", "no_clock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillStep:
    """A step in which the request computed prompt tokens (or tokens again, after a preemption)."""

    step: int
    tokens: int
    step_total_tokens: int
    share_pct: float
    """Of all tokens of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefill:
    """Another request's prefill in steps in which this one was scheduled."""

    request_id: str
    steps: tuple[int, ...]
    tokens: tuple[int, ...]
    step_total_tokens: tuple[int, ...]
    share_pct: tuple[float, ...]
    added_ns: int | None
    """To this request's tokens; None without a clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BesidePrefill:
    """Another request in steps in which this one computed its prompt."""

    request_id: str
    shared_steps: tuple[int, ...]
    """Steps in which it got tokens too."""
    steps_without_budget: tuple[int, ...]
    """Steps in which it waited while their budget was used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """TTFT, in the parts that follow one another. Steps exactly, ns where there is a clock."""

    arrival_step: int
    first_token_step: int | None
    ttft_ns: int | None
    template_ns: int
    tokenize_ns: int
    queue_steps: int
    """Steps in which it waited for its first admission."""
    queue_ns: int | None
    prefill_steps: int
    """Steps in which it computed prompt tokens, the one that gave the first token included."""
    prefill_ns: int | None
    between_chunks_steps: int
    """Steps after its admission in which it got nothing: without budget, or preempted."""
    between_chunks_ns: int | None
    preempted_steps: int
    """Of these, steps in the queue after a preemption."""
    chunks: tuple[PrefillStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Between two tokens that follow one another: steps behind `from_step` up to `to_step`."""

    index: int
    """Of the later token, counted from the first output token, 0."""
    from_step: int
    to_step: int
    steps: int
    """1 is a token a step: nothing came in between."""
    own_steps: int
    """Steps that decoded the token: 1."""
    preempted_steps: int
    """Steps in the waiting queue."""
    recompute_steps: int
    """Steps that computed again what a preemption had thrown away."""
    skipped_steps: int
    """Steps in which it ran and got nothing."""
    others_prefill_tokens: dict[str, int]
    """By request: prompt tokens of others in the steps in which it was scheduled."""
    preempted_for: tuple[str, ...]
    skipped_because_of: dict[str, int]
    """By request: the tokens that others got in the steps in which it got nothing."""
    total_ns: int | None
    own_ns: int | None
    others_prefill_ns: int | None
    preemption_ns: int | None
    skipped_ns: int | None
    pause_ns: int | None
    """Between steps: the engine was paused, or busy with something else than steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowAnswer:
    """The whole of it."""

    first_token: FirstToken
    gaps: tuple[Gap, ...]
    """The worst first."""
    num_gaps: int
    """All of them; `gaps` may be cut."""
    shared_prefill: tuple[SharedPrefill, ...]
    """The one with the most tokens first."""
    beside_prefill: tuple[BesidePrefill, ...]
    """Whom its own prefill kept company, or waiting."""
    steps_skipped: tuple[int, ...]
    """Steps in which it ran and got nothing."""
    waiting_for_budget: tuple[int, ...]
    """Steps in which admission stopped on the budget while it waited."""
    usual_decode_ns: int | None
    """Forward time of its usual decode step."""
    basis: Basis
