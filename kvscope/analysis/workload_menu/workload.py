"""What a workload of the menu is: editable figures, the requests that they make, what to look at.

Figures are fitted to an engine's settings; a figure that cannot be is refused with its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvscope.analysis.workload_menu.rehearsal import Rehearsal
from kvscope.control import PlannedRequest
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.errors import UsageError

MAX_REQUESTS = 512

Figures = Mapping[str, int]
"""Values by their names."""


class FigureError(UsageError):
    """A figure has a value that it cannot have here."""

    def __init__(self, figure: str, message: str) -> None:
        super().__init__(message)
        self.figure = figure


@dataclass(frozen=True, slots=True)
class Figure:
    """One editable number."""

    name: str
    meaning: str
    least: int = 1


SEED = Figure("seed", "another seed, other words", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One entry of the menu."""

    name: str
    title: str
    what: str
    """What is sent, in a sentence."""
    mechanism: str
    """What it is to bring about, as the end of "it brings about no …"."""
    look_at: str
    """Where to look when it runs; its keys in braces, by their defaults, such as `{n}`."""
    figures: tuple[Figure, ...]
    fit: Callable[[SchedulerConfig], dict[str, int]]
    """Figures with which the mechanism is to be seen on an idle engine of these settings, where that can be."""
    requests: Callable[[SchedulerConfig, Figures], tuple[PlannedRequest, ...]]
    happens: Callable[[Rehearsal], bool]
    remedy: Callable[[SchedulerConfig, Figures], dict[str, Any]]
    """Settings with which these figures would bring it about; empty where none would, or none is needed."""

    def check(self, config: SchedulerConfig, figures: Figures) -> None:
        """Raises `FigureError` for the first figure that cannot be."""
        for figure in self.figures:
            if figures[figure.name] < figure.least:
                raise FigureError(figure.name, f"at least {figure.least}, not {figures[figure.name]}")
        num_requests = figures.get("num_requests", 1)
        if num_requests > MAX_REQUESTS:
            raise FigureError("num_requests", f"at most {MAX_REQUESTS}, not {num_requests}")
        requests = self.requests(config, figures)
        longest = max(request.num_shared_tokens + request.num_own_tokens for request in requests)
        limit = config.max_model_len - 1
        if longest > limit:
            name = max((f.name for f in self.figures if f.name.endswith("prompt_tokens")), key=figures.__getitem__)
            raise FigureError(name, f"a prompt of {longest} tokens: max_model_len {limit + 1} allows {limit}")


def most_tokens(config: SchedulerConfig) -> int:
    """Returns how long one request may get: prompt and answer, within `max_model_len` and the pool."""
    return min(config.max_model_len, (config.num_gpu_blocks - 1) * config.block_size)


def ceil_div(total: int, size: int) -> int:
    return -(-total // size)
