"""Nothing is compiled in the middle of serving, as far as Triton's own launcher says it without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

KERNELS = {
    "attention_kernel",
    "sum_splits_kernel",
    "rotate_and_cache_kernel",
    "rms_norm_kernel",
    "silu_and_mul_kernel",
    "sample_kernel",
}


@pytest.mark.parametrize("way", ["graphs", "eager"])
def test_whatever_a_step_needs_was_compiled_before_the_first(way: str, pytestconfig: pytest.Config) -> None:
    """Decodes in every number from 1 to 20, chunks alone and beside decodes, drafts; greedy and random."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.engine.model.gpu.compilations", way]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=pytestconfig.rootpath)
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout)
    assert set(compiled["before"]) == KERNELS
    assert compiled["later"] == []
