"""What a step under way has decided so far: who computes how many tokens, and what is left of the budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvscope.engine.scheduling.request import Request


@dataclass(slots=True)
class Plan:
    """Filled in by the scheduler, request by request."""

    token_budget: int
    threshold: int
    scheduled: dict[Request, int] = field(default_factory=dict)
    """Tokens of each request, in scheduling order."""
    drafts: dict[str, list[int]] = field(default_factory=dict)
    preempted: list[Request] = field(default_factory=list)
    held_back: set[Request] = field(default_factory=set)
    """Running requests that a batching variant leaves out of this step; never any with unified batching."""
    has_scheduled_running: bool = False
    has_scheduled_prefill: bool = False
    """A running request in the middle of its prompt was scheduled."""

    def add(self, request: Request, num_new_tokens: int) -> None:
        """Schedules so many tokens of a request, drafts included, and takes them off the budget."""
        self.scheduled[request] = num_new_tokens
        self.token_budget -= num_new_tokens

    def take_back(self, request: Request) -> int:
        """Forgets a request that was scheduled, and returns the tokens that its budget gets back."""
        num_tokens = self.scheduled.pop(request, 0)
        self.drafts.pop(request.request_id, None)
        self.token_budget += num_tokens
        return num_tokens
