"""How full the pool was: on average, at most, and over time. From the summaries of the steps, looked at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvscope.analysis.run_record import RunFigures
from kvscope.replay.timeline import StepSummary

OCCUPANCY_COLUMNS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Shares of the pool, at the ends of the steps."""

    mean_live: float
    peak_live: float
    peak_step: int
    mean_cached: float
    """Free, and still hittable."""
    num_evicted_blocks: int
    num_usable_blocks: int


def occupancy_of(figures: RunFigures, summaries: Iterable[StepSummary]) -> tuple[Occupancy | None, tuple[float, ...]]:
    """Returns how full the pool was, and over time; the summaries are looked at once."""
    if figures.config is None:
        return None, ()
    usable = max(figures.config.num_gpu_blocks - 1, 1)
    length = max(-(-figures.num_steps // OCCUPANCY_COLUMNS), 1)
    peaks: list[int] = []
    num_steps = sum_live = sum_cached = num_evicted = peak = peak_step = 0
    for summary in summaries:
        live = summary.num_live_blocks
        if num_steps % length == 0:
            peaks.append(live)
        peaks[-1] = max(peaks[-1], live)
        if num_steps == 0 or live > peak:
            peak, peak_step = live, summary.first_step
        num_steps += 1
        sum_live += live
        sum_cached += summary.num_cached_blocks
        num_evicted += summary.num_evicted_blocks
    if not num_steps:
        return None, ()
    occupancy = Occupancy(
        mean_live=sum_live / num_steps / usable,
        peak_live=peak / usable,
        peak_step=peak_step,
        mean_cached=sum_cached / num_steps / usable,
        num_evicted_blocks=num_evicted,
        num_usable_blocks=usable,
    )
    return occupancy, tuple(most / usable for most in peaks)
