"""What passes between scheduler and model runner in a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kvscope.engine.scheduling.request import Request


@dataclass(slots=True)
class SchedulerOutput:
    """The work of one step. The three lists run in scheduling order: running requests, then admitted ones.

    `request.num_computed_tokens` is already advanced: the tokens to feed are
    `all_token_ids[num_computed_tokens - num_scheduled : num_computed_tokens]`, with the scheduled drafts behind the
    request's own tokens where that range reaches beyond them. `request.block_ids` covers all of them.
    """

    step: int
    requests: list[Request]
    num_scheduled_tokens: list[int]
    """Drafts included; each at least 1."""
    scheduled_spec_tokens: dict[str, list[int]] = field(default_factory=dict)
    """By request id, the drafts among the scheduled tokens."""
    finished_request_ids: list[str] = field(default_factory=list)
    """Requests that ended since the last step's schedule: a runner forgets them."""
    preempted_request_ids: list[str] = field(default_factory=list)
    """Requests preempted in this step: their KV is gone, their block tables are new when they come back."""

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Drafts included."""
        return sum(self.num_scheduled_tokens)


@dataclass(slots=True)
class TokenLogprobs:
    """Logprobs of one sampled token: its own, its rank (1 is the most likely), and the most likely ones."""

    logprob: float
    rank: int
    top: list[tuple[int, float]]


@dataclass(slots=True)
class ModelRunnerOutput:
    """What the model made of a step, aligned with `SchedulerOutput.requests`."""

    sampled_token_ids: list[list[int]]
    """Empty for a request whose prompt is not finished; with drafts, the accepted ones and one more."""
    logprobs: dict[str, list[TokenLogprobs]] = field(default_factory=dict)
    draft_token_ids: dict[str, list[int]] = field(default_factory=dict)
    """What the drafter proposes for the next step."""
    forward_ns: int = 0
    sample_ns: int = 0


@dataclass(slots=True)
class StepResult:
    """What `update_from_output` did to the requests."""

    requests: list[Request] = field(default_factory=list)
    """Those that got tokens, in scheduling order."""
    new_token_ids: list[list[int]] = field(default_factory=list)
    """Their new tokens: what was sampled, less what came after an end."""
    finished: list[Request] = field(default_factory=list)
    """Those of them that ended; `status` and `stop_reason` say how."""


class ModelRunner(Protocol):
    """Turns scheduled tokens into sampled ones. The seam between scheduling and everything that needs torch."""

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Computes the scheduled tokens, writes their KV, and samples where a request's tokens are complete."""
        ...
