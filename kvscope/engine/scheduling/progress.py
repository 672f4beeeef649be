"""Notices that a run can make no more progress by itself, and says whom to blame.

Without arrivals and aborts the scheduler is a function of its state: a state that comes back comes back for ever.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from kvscope.engine.scheduling import rules
from kvscope.engine.scheduling.output import SchedulerOutput, StepResult
from kvscope.engine.scheduling.request import Request
from kvscope.engine.scheduling.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A run that would go on for ever without another token."""

    kind: Literal["deadlock", "livelock"]
    """Nothing is scheduled any more; or the same prompts are computed again and again."""
    step: int
    """The step in which it was noticed."""
    request_id: str
    """The request to blame."""
    reason: str


class ProgressWatch:
    """Looks at each finished step. The caller asks only while nothing is still to come from outside."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._seen: set[Hashable] = set()

    def reset(self) -> None:
        """Something came from outside: what was seen before says nothing any more."""
        self._seen.clear()

    def look(self, output: SchedulerOutput, result: StepResult) -> Stuck | None:
        """Returns why the run is stuck after this step, None while it may get on."""
        if result.requests:
            self._seen.clear()
            return None
        live = self._scheduler.requests
        preempted = [live[request_id] for request_id in output.preempted_request_ids if request_id in live]
        if not preempted:
            # Computed tokens only grow, so a step that schedules something gets on.
            return None if output.requests else self._deadlock()
        state = _state(self._scheduler)
        if state in self._seen:
            return self._livelock(preempted)
        self._seen.add(state)
        return None

    def _deadlock(self) -> Stuck | None:
        scheduler = self._scheduler
        if not scheduler.requests:
            return None
        if scheduler.running:
            request = scheduler.running[0]
            limit = scheduler.config.max_model_len
            reason = (
                f"it runs with {request.num_computed_tokens} of its {request.num_tokens} tokens computed, and "
                f"max_model_len {limit} has no place left for a sampled token"
            )
        else:
            request = scheduler.waiting.head()
            reason = self._why_not_admitted(request)
        return Stuck(kind="deadlock", step=scheduler.step, request_id=request.request_id, reason=reason)

    def _why_not_admitted(self, request: Request) -> str:
        verdict = self._scheduler.head_verdict
        assert verdict is not None, "nothing runs, nothing is admitted, and no test failed"
        if verdict.reason not in ("blocks", "watermark", "full_isl", "full_isl_watermark"):
            return (
                f"it fails the test {verdict.reason!r} for ever: it needs {verdict.need} and there are {verdict.have}"
            )
        scheduler = self._scheduler
        usable = scheduler.config.num_gpu_blocks - 1
        need = rules.num_blocks_for(request.num_tokens, scheduler.config.block_size)
        whole = f"its {request.num_tokens} tokens fill {need} blocks of {scheduler.config.block_size}"
        hits = len(scheduler.kv_cache_manager.get_computed_blocks(request))
        cost = f"admission takes {verdict.need} free blocks" + (f", {hits} of them for its own hits" if hits else "")
        return f"{whole}, the pool has {usable}; {cost}, {verdict.have} are free, and nothing runs that could free more"

    def _livelock(self, preempted: list[Request]) -> Stuck:
        scheduler = self._scheduler
        request = max(preempted, key=lambda request: request.num_tokens)
        usable = scheduler.config.num_gpu_blocks - 1
        need = rules.num_blocks_for(request.num_tokens, scheduler.config.block_size)
        reason = (
            f"it is preempted again and again before it samples a token: its {request.num_tokens} tokens fill {need} "
            f"blocks of {scheduler.config.block_size}, the pool has {usable}; so far {request.num_preemptions} times"
        )
        return Stuck(kind="livelock", step=scheduler.step, request_id=request.request_id, reason=reason)


def _state(scheduler: Scheduler) -> Hashable:
    """Returns all that decisions depend on, with blocks named by their place instead of their id."""
    pool = scheduler.kv_cache_manager.pool
    names: dict[int, int] = {}
    for request in scheduler.running:
        for block_id in request.block_ids:
            names.setdefault(block_id, len(names))
    for block_id in pool.free_queue:
        names[block_id] = len(names)
    return (
        tuple(request.request_id for request in scheduler.waiting),
        tuple(
            (
                request.request_id,
                request.num_computed_tokens,
                request.num_cached_blocks,
                request.is_prefill_chunk,
                tuple(request.spec_token_ids),
                tuple(names[block_id] for block_id in request.block_ids),
            )
            for request in scheduler.running
        ),
        tuple(pool.block_hashes.get(block_id) for block_id in pool.free_queue),
        frozenset(
            tuple(names[block_id] for block_id in entry)
            for entry in pool.cached_blocks.values()
            if isinstance(entry, dict)
        ),
    )
