"""Runs of vLLM 0.32.0's own scheduler that reproduce reported symptoms, each with its question and its true answer."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.engine.scheduling.scripted_run import ScriptedRun
from kvscope.replay import MemoryTimeline


@cache
def cases() -> dict[str, dict[str, Any]]:
    """Returns the cases by name, each with `question`, `answer`, `how`, `conventions`, `workload`."""
    found: dict[str, dict[str, Any]] = json.loads(
        lzma.decompress((Path(__file__).parent / "cases.json.xz").read_bytes())
    )
    return found


@cache
def recorded_case(name: str) -> MemoryTimeline:
    """Returns the case's workload, run by our scheduler."""
    timeline = MemoryTimeline(f"{name}.db")
    ScriptedRun(parse_scenario({"workload": cases()[name]["workload"]}), timeline).run()
    timeline.finish()
    return timeline
