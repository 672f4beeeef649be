"""The smallest change of each setting with which a waiting request would not have waited at a step.

A stated value has been tried out, and so has its neighbour one step nearer to the recorded one, with which the request
still waits; `trials` says what is tried. Small differences are tried one by one, larger ones by doubling and halving:
where admission does not grow with a setting, a smaller change than the one found may do as well, and "none helps" is
said of the values that were tried.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kvscope.analysis.why.trials import StillBlocked, Trial

_ONE_BY_ONE = 8
"""Differences that are tried one by one before they are doubled."""
IS_SO_ALREADY = "it is so already"


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
    is_exact: bool = True
    """False where a trial needed tokens that the recording does not know, and made them up."""

    @property
    def helps(self) -> bool:
        return self.value is not None


def smallest_changes(trial: Trial) -> tuple[Change, ...]:
    """Returns a change for each setting that decides on admissions; nothing where trying out says nothing.

    It says nothing where the run was decided by what is not known here (a connector, a batch that was formed earlier),
    or where the request does not wait under the recorded settings either.
    """
    config = trial.config
    if config.connector or trial.admits():
        return ()
    switches: dict[str, Any] = {"scheduler_reserve_full_isl": False, "enable_chunked_prefill": True}
    switches["policy"] = "priority" if config.policy == "fcfs" else "fcfs"
    searches: list[Callable[[Trial], Change]] = [_more_blocks, _more_seqs, _more_budget, _less_watermark]
    searches += [_smaller_threshold, *(partial(_switch, setting=name, value=on) for name, on in switches.items())]
    changes: list[Change] = []
    for search in searches:
        trial.is_exact = True
        change = search(trial)
        changes.append(dataclasses.replace(change, is_exact=trial.is_exact))
    return tuple(change for change in changes if change.note != IS_SO_ALREADY)


def _more_blocks(trial: Trial) -> Change:
    now = trial.config.num_gpu_blocks
    most = math.ceil((now + trial.limits.blocks) / max(1 - trial.config.watermark, 0.01)) + 1
    return _smallest(trial, "num_gpu_blocks", now, most)


def _more_seqs(trial: Trial) -> Change:
    now = trial.config.max_num_seqs
    wanted = max(trial.limits.requests, now)
    most = min(wanted, max(trial.config.max_num_batched_tokens, now))
    change = _smallest(trial, "max_num_seqs", now, most)
    if not change.helps and wanted > most:
        return dataclasses.replace(change, note=f"it can be {most} at most: max_num_batched_tokens")
    return change


def _more_budget(trial: Trial) -> Change:
    config = trial.config
    return _smallest(
        trial, config.token_budget_setting, config.token_budget, max(trial.limits.tokens, config.token_budget) + 1
    )


def _less_watermark(trial: Trial) -> Change:
    config = trial.config
    now = config.watermark_blocks
    if now == 0:
        return Change(setting="watermark", now=config.watermark, value=None, difference=None, note="it is off")

    def fraction(num_blocks: int) -> float:
        return num_blocks / config.num_gpu_blocks + 1e-9 if num_blocks else 0.0

    found = _search(lambda fewer: trial.admits(watermark=fraction(now - fewer)), now)
    if found is None:
        trial.admits(watermark=0.0)
        return Change(
            setting="watermark", now=config.watermark, value=None, difference=None, still_blocked=trial.blocked
        )
    kept = now - found
    value = math.ceil(kept / config.num_gpu_blocks * 1e6) / 1e6
    return Change(setting="watermark", now=config.watermark, value=value, difference=-found, watermark_blocks=kept)


def _smaller_threshold(trial: Trial) -> Change:
    setting = "long_prefill_token_threshold"
    now = trial.config.long_prefill_token_threshold
    start = now if now > 0 else trial.limits.longest
    found = _search(lambda fewer: trial.admits(**{setting: start - fewer}), start - 1)
    if found is None:
        blocked = None
        if start > 1:
            trial.admits(**{setting: 1})
            blocked = trial.blocked
        return Change(setting=setting, now=now, value=None, difference=None, still_blocked=blocked)
    return Change(setting=setting, now=now, value=start - found, difference=-found if now else None)


def _switch(trial: Trial, setting: str, value: Any) -> Change:
    now = getattr(trial.config, setting)
    if now == value:
        return Change(setting=setting, now=now, value=None, difference=None, note=IS_SO_ALREADY)
    if trial.admits(**{setting: value}):
        return Change(setting=setting, now=now, value=value, difference=None)
    return Change(setting=setting, now=now, value=None, difference=None, still_blocked=trial.blocked)


def _smallest(trial: Trial, setting: str, now: int, most: int) -> Change:
    found = _search(lambda more: trial.admits(**{setting: now + more}), most - now)
    if found is None:
        if most > now:
            trial.admits(**{setting: most})
        else:
            trial.admits()
        return Change(setting=setting, now=now, value=None, difference=None, still_blocked=trial.blocked)
    return Change(setting=setting, now=now, value=now + found, difference=found)


def _search(admits: Callable[[int], bool], most: int) -> int | None:
    """Returns a change of 1 to `most` that admits while one less does not (none at all does not), or None."""
    fails, size = 0, 1
    while size < most and not admits(size):
        fails, size = size, size + 1 if size < _ONE_BY_ONE else size * 2
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
