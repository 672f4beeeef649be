"""What all benchmarks share: the machine they ran on, rounds that take turns, and ratios with their uncertainty.

A ratio is taken round by round, between two things that ran right after one another, so that a machine which is slow
for a while slows both. Knows nothing of what is measured.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import sqlite3
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kvscope
from kvscope.analysis.percentiles import in_order, percentile
from kvscope.errors import UsageError

VERSIONED_PACKAGES = ("torch", "triton", "textual", "msgspec")
_T_DEGREES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 30, 60, 120)
_T_VALUES = (12.71, 4.303, 3.183, 2.777, 2.571, 2.447, 2.365, 2.307, 2.263, 2.229, 2.132, 2.086, 2.043, 2.001, 1.98)
"""Student's t at 97.5 % by degrees of freedom: half of a two-sided 95 % interval, in standard errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a benchmark ran."""

    processor: str
    num_cores: int
    """Those that this process may use."""
    threads: int | None
    """Torch's, None where the benchmark uses no torch."""
    gpu: str | None
    platform: str
    load_average: float | None
    """Of the last minute, when the benchmark began: what else ran."""
    versions: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Returns what `--json` keeps."""
        return {
            "processor": self.processor,
            "num_cores": self.num_cores,
            "threads": self.threads,
            "gpu": self.gpu,
            "platform": self.platform,
            "load_average": self.load_average,
            "versions": dict(self.versions),
        }

    def lines(self) -> list[str]:
        """Returns what a table begins with."""
        threads = "" if self.threads is None else f", torch threads {self.threads}"
        gpu = "" if self.gpu is None else f", {self.gpu}"
        load = "" if self.load_average is None else f", load {self.load_average:.1f}"
        return [
            f"{self.processor}, {self.num_cores} cores{threads}{gpu}{load}; {self.platform}",
            ", ".join(f"{name} {version}" for name, version in self.versions.items()),
        ]


def this_machine(*, has_torch: bool = False) -> Machine:
    """Returns the machine that this process runs on; with torch also its threads and GPU (torch is imported then)."""
    threads = gpu = None
    if has_torch:
        import torch

        threads = torch.get_num_threads()
        gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    versions = {
        "kvscope": kvscope.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    for name in VERSIONED_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    is_linux = hasattr(os, "sched_getaffinity")
    return Machine(
        processor=_processor(),
        num_cores=len(os.sched_getaffinity(0)) if is_linux else os.cpu_count() or 1,
        threads=threads,
        gpu=gpu,
        platform=f"{platform.system()} {platform.release()}",
        load_average=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        versions=versions,
    )


def _processor() -> str:
    """Returns the processor's name: Linux keeps it in a file, elsewhere platform knows it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """What times of one kind look like, in the unit of the values."""

    num_values: int
    p50: float
    p90: float
    p99: float
    worst: float

    def as_json(self) -> dict[str, float]:
        """Returns what `--json` keeps."""
        return {
            "num_values": self.num_values,
            "p50": round(self.p50, 3),
            "p90": round(self.p90, 3),
            "p99": round(self.p99, 3),
            "worst": round(self.worst, 3),
        }


def latencies(values: Iterable[float]) -> Latencies:
    """Returns the percentiles of some times; there must be one at least."""
    ordered = in_order(values)
    p50, p90, p99 = (percentile(ordered, percent) for percent in (50, 90, 99))
    return Latencies(num_values=len(ordered), p50=p50, p90=p90, p99=p99, worst=ordered[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One thing over another, round by round."""

    median: float
    mean: float
    """Geometric."""
    low: float
    high: float
    """95 % confidence interval of the mean, Student's t over the rounds' logarithms; infinite for a single round."""
    smallest: float
    largest: float
    num_pairs: int

    def as_json(self) -> dict[str, Any]:
        """Returns what `--json` keeps."""
        return {
            "median": self.median,
            "mean": self.mean,
            "confidence_95": [self.low, self.high] if self.num_pairs > 1 else None,
            "smallest": self.smallest,
            "largest": self.largest,
            "num_pairs": self.num_pairs,
        }

    def __str__(self) -> str:
        interval = f", 95 % {self.low:.3f}–{self.high:.3f}" if self.num_pairs > 1 else ""
        return f"{self.median:.3f} ({self.smallest:.3f}–{self.largest:.3f}{interval})"


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Returns the ratio of each round's two positive figures, with its spread and confidence interval."""
    ratios = [above / below for above, below in zip(numerators, denominators, strict=True)]
    logs = [math.log(value) for value in ratios]
    mean = statistics.fmean(logs)
    half = math.inf
    if len(logs) > 1:
        half = _students_t(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(
        median=statistics.median(ratios),
        mean=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        smallest=min(ratios),
        largest=max(ratios),
        num_pairs=len(ratios),
    )


def _students_t(degrees: int) -> float:
    """Returns Student's t at 97.5 %, between two entries of the table the larger one."""
    return min(t for least, t in zip(_T_DEGREES, _T_VALUES, strict=True) if degrees >= least)


def take_turns(
    measures: Mapping[str, Callable[[], float]],
    num_rounds: int,
    on_round: Callable[[int, str], None] = lambda round_number, name: None,
) -> dict[str, list[float]]:
    """Returns each measure's figure of every round. Every other round runs backwards, so that being first is nobody's
    advantage. Raises `UsageError` below one round."""
    if num_rounds < 1:
        raise UsageError(f"{num_rounds} rounds: give at least one")
    figures: dict[str, list[float]] = {name: [] for name in measures}
    names = list(measures)
    for round_number in range(num_rounds):
        for name in names if round_number % 2 == 0 else reversed(names):
            on_round(round_number, name)
            figures[name].append(measures[name]())
    return figures
