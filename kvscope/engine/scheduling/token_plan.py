"""The split of a step's budget by itself, as a lesson on unified scheduling has it: no blocks, no sequences, no caps.

What the scheduler decides where blocks and sequences are ample equals it, which a test holds it to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypedDict


class PlannedRequest(TypedDict):
    """A request of `unified_token_plan`, with its tokens computed and in all, drafts included."""

    id: str
    status: Literal["running", "waiting"]
    computed: int
    total_with_spec: int


def unified_token_plan(requests: Iterable[PlannedRequest], token_budget: int) -> tuple[dict[str, int], int]:
    """Returns each request's share of the budget and what is left of it.

    Running requests first, then waiting ones, each takes the smaller of its gap and the budget; prefill, decode and
    verification of drafts are all gaps.

    Raises:
        ValueError: the budget is negative, or a request's counters are.
    """
    requests = list(requests)
    if token_budget < 0:
        raise ValueError("negative token budget")
    if any(r["computed"] < 0 or r["total_with_spec"] < r["computed"] for r in requests):
        raise ValueError("invalid request counters")
    plan: dict[str, int] = {}
    for status in ("running", "waiting"):
        for request in requests:
            take = min(request["total_with_spec"] - request["computed"], token_budget)
            if request["status"] == status and take:
                plan[request["id"]] = take
                token_budget -= take
    return plan, token_budget
