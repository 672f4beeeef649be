"""The smallest change of each setting that would have admitted a waiting request at a step, by running the step again.

What is promised of a value: the step, scheduled again from exactly what stood before it, with this one setting changed
and nothing else, admits the request; with a value one step nearer to the recorded one it does not. The step's running
requests are scheduled under the changed setting too, so a larger budget that they would eat up does not count. What
later steps would make of it is another question (`kvscope whatif`).

Values are searched by doubling and halving. Where admission does not grow with a setting, a smaller change than the one
found may admit as well.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvscope.engine.scheduling import rules
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.restored import Standing, restored_scheduler
from kvscope.events import QueueTest

MAX_HOLDERS = 64
"""How many holders are tried: one run of the step each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StillBlocked:
    """What stands in the way where a setting does not help: the verdict on the head of the queue."""

    request_id: str
    reason: QueueTest
    need: int
    have: int
    watermark_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One setting, changed alone."""

    setting: str
    now: Any
    value: Any
    """The value that admits; None where none does."""
    difference: int | None
    """In units of the setting (for `watermark`: blocks); None for settings that are no number, or where none helps."""
    watermark_blocks: int | None = None
    """With `watermark`: what the value makes of it."""
    still_blocked: StillBlocked | None = None
    """Where no value helps: the test that fails even with the most helpful one."""
    note: str = ""

    @property
    def helps(self) -> bool:
        return self.value is not None


class Rerun:
    """Runs one step again under other settings, or without one of the requests."""

    def __init__(self, config: SchedulerConfig, standing: Standing, request_id: str) -> None:
        self.config = config
        self.standing = standing
        self.request_id = request_id
        self.blocked: StillBlocked | None = None
        """The verdict of the last run."""

    def admits(self, **settings: Any) -> bool:
        """Runs the step with these settings; True if it admits the request."""
        return self._run(dataclasses.replace(self.config, **settings))

    def admits_without(self, request_id: str) -> bool:
        """Runs the step as if a running request had ended just before it."""
        return self._run(self.config, ended_id=request_id)

    def _run(self, config: SchedulerConfig, ended_id: str | None = None) -> bool:
        scheduler = restored_scheduler(config, self.standing)
        if ended_id is not None:
            scheduler.abort(ended_id)
        scheduler.schedule()
        verdict = scheduler.head_verdict
        self.blocked = None
        if verdict is not None:
            self.blocked = StillBlocked(
                request_id=scheduler.waiting.head().request_id,
                reason=verdict.reason,
                need=verdict.need,
                have=verdict.have,
                watermark_blocks=verdict.watermark_blocks,
            )
        return any(request.request_id == self.request_id for request in scheduler.running)


def smallest_changes(rerun: Rerun) -> tuple[Change, ...]:
    """Returns a change for each setting that decides on admissions; nothing where the step cannot be run again.

    It cannot where it was decided by what is not restored (a connector, a static batch), or where the request was
    admitted, or running, when the step is run with the recorded settings.
    """
    config = rerun.config
    if config.connector or config.batching == "static" or rerun.admits():
        return ()
    changes = [_more_blocks(rerun), _more_seqs(rerun), _more_budget(rerun), _less_watermark(rerun)]
    changes.append(_switch(rerun, "scheduler_reserve_full_isl", False))
    if not config.enable_chunked_prefill:
        changes.append(_switch(rerun, "enable_chunked_prefill", True))
    changes.append(_smaller_threshold(rerun))
    changes.append(_switch(rerun, "policy", "priority" if config.policy == "fcfs" else "fcfs"))
    return tuple(changes)


def _more_blocks(rerun: Rerun) -> Change:
    config, state = rerun.config, rerun.standing.state
    now = config.num_gpu_blocks
    everything = sum(
        rules.num_blocks_for(request.num_tokens + config.num_spec_tokens + 1, config.block_size)
        for request_id in [*state.running, *state.waiting]
        for request in [state.requests[request_id]]
    )
    most = math.ceil((now + everything) / max(1 - config.watermark, 0.01)) + 1
    return _smallest(rerun, "num_gpu_blocks", now, most)


def _more_seqs(rerun: Rerun) -> Change:
    config, state = rerun.config, rerun.standing.state
    now = config.max_num_seqs
    wanted = max(len(state.running) + len(state.waiting), now)
    most = min(wanted, config.max_num_batched_tokens)
    change = _smallest(rerun, "max_num_seqs", now, most)
    if not change.helps and wanted > most:
        return dataclasses.replace(change, note=f"it can be {most} at most: max_num_batched_tokens")
    return change


def _more_budget(rerun: Rerun) -> Change:
    config, state = rerun.config, rerun.standing.state
    limited = config.max_num_scheduled_tokens is not None
    setting = "max_num_scheduled_tokens" if limited else "max_num_batched_tokens"
    gaps = sum(
        request.num_tokens + len(request.draft_token_ids) + config.num_spec_tokens - request.num_computed_tokens
        for request_id in [*state.running, *state.waiting]
        for request in [state.requests[request_id]]
    )
    return _smallest(rerun, setting, config.token_budget, max(gaps, config.token_budget) + 1)


def _less_watermark(rerun: Rerun) -> Change:
    config = rerun.config
    now = config.watermark_blocks
    if now == 0:
        return Change(setting="watermark", now=config.watermark, value=None, difference=None, note="it is off")

    def fraction(num_blocks: int) -> float:
        return num_blocks / config.num_gpu_blocks + 1e-9 if num_blocks else 0.0

    found = _search(lambda fewer: rerun.admits(watermark=fraction(now - fewer)), now)
    if found is None:
        rerun.admits(watermark=0.0)
        return Change(
            setting="watermark", now=config.watermark, value=None, difference=None, still_blocked=rerun.blocked
        )
    kept = now - found
    value = math.ceil(kept / config.num_gpu_blocks * 1e6) / 1e6
    return Change(setting="watermark", now=config.watermark, value=value, difference=-found, watermark_blocks=kept)


def _smaller_threshold(rerun: Rerun) -> Change:
    config, state = rerun.config, rerun.standing.state
    setting = "long_prefill_token_threshold"
    now = config.long_prefill_token_threshold
    longest = max((request.num_tokens - request.num_computed_tokens for request in state.requests.values()), default=1)
    start = now if now > 0 else longest
    found = _search(lambda fewer: rerun.admits(**{setting: start - fewer}), start - 1)
    if found is None:
        blocked = None
        if start > 1:
            rerun.admits(**{setting: 1})
            blocked = rerun.blocked
        return Change(setting=setting, now=now, value=None, difference=None, still_blocked=blocked)
    return Change(setting=setting, now=now, value=start - found, difference=-found if now else None)


def _switch(rerun: Rerun, setting: str, value: Any) -> Change:
    now = getattr(rerun.config, setting)
    if now == value:
        return Change(setting=setting, now=now, value=None, difference=None, note="it is so already")
    if rerun.admits(**{setting: value}):
        return Change(setting=setting, now=now, value=value, difference=None)
    return Change(setting=setting, now=now, value=None, difference=None, still_blocked=rerun.blocked)


def _smallest(rerun: Rerun, setting: str, now: int, most: int) -> Change:
    found = _search(lambda more: rerun.admits(**{setting: now + more}), most - now)
    if found is None:
        if most > now:
            rerun.admits(**{setting: most})
        else:
            rerun.admits()
        return Change(setting=setting, now=now, value=None, difference=None, still_blocked=rerun.blocked)
    return Change(setting=setting, now=now, value=now + found, difference=found)


def _search(admits: Callable[[int], bool], most: int) -> int | None:
    """Returns a change of 1 to `most` that admits while one less does not (none at all does not), or None."""
    fails, size = 0, 1
    while size < most and not admits(size):
        fails, size = size, size * 2
    size = min(size, most)
    if size <= fails or (size == most and not admits(size)):
        return None
    while size - fails > 1:
        middle = (size + fails) // 2
        if admits(middle):
            size = middle
        else:
            fails = middle
    return size
