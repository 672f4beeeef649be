"""A workload for an engine of which the settings are recorded: fields to figures, figures to a plan and a forecast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvscope.analysis.recorded_settings import scheduler_config
from kvscope.analysis.workload_menu.rehearsal import Rehearsal, rehearse
from kvscope.analysis.workload_menu.workload import FigureError, Workload
from kvscope.control import PlannedRequest
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.settings import scheduler_config as checked_config
from kvscope.errors import KvscopeError
from kvscope.events import EngineConfigured


@dataclass(frozen=True, slots=True)
class Forecast:
    """What figures bring about, and settings with which they would bring about what the workload is for."""

    rehearsal: Rehearsal
    remedy: dict[str, Any] = field(default_factory=dict)
    """Empty where nothing is missing, or no single setting would help."""


class FittedWorkload:
    """One workload for one engine."""

    def __init__(self, workload: Workload, config: EngineConfigured) -> None:
        self.workload = workload
        self.settings_text = str(config.settings)
        self._config = scheduler_config(config)
        self.fitted = workload.fit(self._config)

    def read(self, texts: Mapping[str, str]) -> tuple[dict[str, int], dict[str, str]]:
        """Returns the figures of fields, an empty one being as it was fitted, and what is wrong by name."""
        figures, errors = dict(self.fitted), {}
        for name, text in texts.items():
            if not text.strip():
                continue
            try:
                figures[name] = int(text)
            except ValueError:
                errors[name] = f"a whole number, not {text.strip()!r}"
        if not errors:
            try:
                self.workload.check(self._config, figures)
            except FigureError as error:
                errors[error.figure] = error.message
        return figures, errors

    def plan(self, figures: Mapping[str, int]) -> tuple[PlannedRequest, ...]:
        """Returns the requests."""
        return self.workload.requests(self._config, figures)

    def foretell(self, figures: Mapping[str, int], is_left: Callable[[], bool] = lambda: False) -> Forecast:
        """Rehearses the figures; where what they are for does not come, also with the setting changed that would do.

        `is_left` is asked between two steps.
        """
        found = rehearse(self._config, self.plan(figures), is_left=is_left)
        if self.workload.happens(found) or found.is_cut:
            return Forecast(found)
        remedy = self.workload.remedy(self._config, figures)
        return Forecast(found, remedy if remedy and self._helps(figures, remedy, is_left) else {})

    def _helps(self, figures: Mapping[str, int], remedy: Mapping[str, Any], is_left: Callable[[], bool]) -> bool:
        """Advice that does not help is none."""
        try:
            changed = _changed(self._config, remedy)
            self.workload.check(changed, figures)
        except KvscopeError:
            return False
        return self.workload.happens(rehearse(changed, self.workload.requests(changed, figures), is_left=is_left))


def _changed(config: SchedulerConfig, remedy: Mapping[str, Any]) -> SchedulerConfig:
    """Returns the settings as a restart would have them: a smaller pool takes shorter requests."""
    settings = config.as_settings() | dict(remedy)
    longest = (settings["num_gpu_blocks"] - 1) * settings["block_size"]
    return checked_config(settings | {"max_model_len": min(settings["max_model_len"], longest)})
