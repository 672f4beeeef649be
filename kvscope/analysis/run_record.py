"""A run as figures, as a record: what `run_figures` collects, and from which kinds of events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kvscope import events as ev
from kvscope.analysis.request_figures import RequestFigures
from kvscope.analysis.step_columns import StepColumns

FIGURE_KINDS: tuple[type[ev.Event], ...] = (
    ev.EngineConfigured,
    ev.RequestArrived,
    ev.RequestRejected,
    ev.RequestAborted,
    ev.StepStarted,
    ev.AllocationFailed,
    ev.AdmissionEnded,
    ev.PrefixCacheHit,
    ev.RequestAdmitted,
    ev.RequestResumed,
    ev.RequestPreempted,
    ev.TokensScheduled,
    ev.TokensSampled,
    ev.DraftsVerified,
    ev.RequestFinished,
    ev.StepFinished,
    ev.StepFailed,
)
"""The kinds that the pass needs; block events besides are counted where they are there."""


@dataclass(frozen=True, slots=True)
class FailedAllocation:
    """An allocation that was refused, with its step."""

    step: int
    event: ev.AllocationFailed


@dataclass(slots=True)
class RunFigures:
    """A run as figures."""

    config: ev.EngineConfigured | None = None
    requests: dict[str, RequestFigures] = field(default_factory=dict)
    """By arrival."""
    steps: StepColumns = field(default_factory=StepColumns)
    stops: Counter[str] = field(default_factory=Counter)
    """Why the waiting loop ended, in how many steps."""
    stops_with_waiting: Counter[str] = field(default_factory=Counter)
    """The same, of the steps after whose admissions somebody still waited."""
    preemptions: list[tuple[int, str]] = field(default_factory=list)
    """`(step, victim)` in order."""
    num_rejected: int = 0
    num_failed_steps: int = 0
    num_empty_steps: int = 0
    """Steps that scheduled nothing while something waited."""
    verifications: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often so many drafts of a request were verified in a step and so many of them accepted."""
    num_rolled_back_tokens: int = 0
    """Tokens that were computed for rejected drafts, and taken back."""
    last_failed_allocation: FailedAllocation | None = None
    num_evicted_blocks: int = 0
    """Only where the block events were there."""
    num_free_blocks: int = 0
    min_free_blocks: int | None = None
    """The fewest free blocks that the schedule of a step left; None without block events."""

    @property
    def is_timed(self) -> bool:
        """The engine had a clock. Scripted runs have none: their figures are in steps."""
        return any(self.steps.forward_ns) or any(self.steps.start_ns)

    @property
    def num_steps(self) -> int:
        return len(self.steps)

    @property
    def num_lost_tokens(self) -> int:
        """Computed tokens that preemptions threw away."""
        return sum(request.num_lost_tokens for request in self.requests.values())

    @property
    def num_recomputed_tokens(self) -> int:
        """Of these, tokens that were computed a second time."""
        return sum(request.num_recomputed_tokens for request in self.requests.values())

    @property
    def num_hit_tokens(self) -> int:
        """Of all admissions, first ones and those after preemptions."""
        return sum(request.num_hit_tokens for request in self.requests.values())
