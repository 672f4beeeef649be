"""Runs of vLLM 0.32.0's own scheduler: hand-made scenarios, and random mixes with tight pools."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

KINDS = ("scenarios", "random")


@cache
def golden_runs(kind: str) -> dict[str, dict[str, Any]]:
    """Returns the runs of a kind by name, each `{"workload": …, "trace": …}`."""
    runs: dict[str, dict[str, Any]] = json.loads(
        lzma.decompress((Path(__file__).parent / f"{kind}.json.xz").read_bytes())
    )
    return runs


def golden_names() -> list[tuple[str, str]]:
    """Returns kind and name of every run."""
    return [(kind, name) for kind in KINDS for name in golden_runs(kind)]
