"""The engine of a recording as plain text to take along: without it nobody can repeat what a report tells."""

from __future__ import annotations

from kvscope.analysis.setting_words import settings_line
from kvscope.analysis.spans import Span, hanging
from kvscope.analysis.text import visible
from kvscope.events import EngineConfigured

WIDTH = 80


def engine_report(config: EngineConfigured, width: int = WIDTH) -> list[str]:
    """Returns what ran and all its settings, in lines of at most `width` cells."""
    kernels = f", {config.kernels} kernels" if config.kernels else ""
    ran = [f"{config.model} on {config.device} in {config.dtype}{kernels}", config.engine_version]
    if config.started_at:
        ran.append(f"started {config.started_at}")
    settings = {name: value for name, value in config.settings.items() if value is not None}
    rows = [("ENGINE    ", "; ".join(filter(None, ran))), ("SETTINGS  ", settings_line(settings))]
    return [line for lead, text in rows for line in hanging(lead, [Span(visible(text))], width)]
