"""The settings of a recorded run, as the scheduler's rules take them."""

from __future__ import annotations

import dataclasses
from typing import Any

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.events import EngineConfigured

_KNOWN_SETTINGS = frozenset(field.name for field in dataclasses.fields(SchedulerConfig))


def scheduler_config(config: EngineConfigured) -> SchedulerConfig:
    """Returns the recorded settings as the rules take them; settings that this version does not know are left out."""
    settings: dict[str, Any] = {name: value for name, value in config.settings.items() if name in _KNOWN_SETTINGS}
    return SchedulerConfig(**{**settings, "num_gpu_blocks": config.num_gpu_blocks, "block_size": config.block_size})
