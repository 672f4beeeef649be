"""What the kernels take of GPUs that are not there: registers, shared memory, and how wide they copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KERNELS = {
    "attention_kernel",
    "sum_splits_kernel",
    "rotate_and_cache_kernel",
    "rms_norm_kernel",
    "silu_and_mul_kernel",
    "sample_kernel",
}
COPY_BYTES = {"attention_kernel": [16], "sample_kernel": [4, 16]}
PROCESSOR_REGISTERS = 65_536
PROCESSOR_SHARED = {80: 164 << 10, 90: 228 << 10, 100: 228 << 10}
"""Bytes of shared memory of a processor; each program takes 1 KiB more than its own."""


def named(launch: dict[str, Any]) -> str:
    return f"{launch['kernel']} {launch['dtype']} {launch['constants']}"


@pytest.mark.timeout(400)  # half a minute on a quiet machine, twenty seconds of it in Triton's compiler and ptxas
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_fits_the_device_without_spilled_registers(capability: int, pytestconfig: pytest.Config) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    # Kept between runs: what is compiled is found again by its text, Triton's version and the target.
    environment["TRITON_CACHE_DIR"] = str(_cache(pytestconfig))
    command = [sys.executable, "-m", "tests.engine.kernels.compiled", str(capability)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=pytestconfig.rootpath)
    assert done.returncode == 0, done.stderr
    launches: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]

    assert {launch["kernel"] for launch in launches} == KERNELS
    assert [named(launch) for launch in launches if launch["spilled_bytes"]] == []
    assert [named(launch) for launch in launches if launch["shared_bytes"] > launch["shared_limit"]] == []
    threads = [launch["registers"] * 32 * launch["num_warps"] for launch in launches]
    assert max(threads) <= PROCESSOR_REGISTERS
    # Keys, values and logits come to shared memory asynchronously, 16 bytes a thread; candidates of sampling 4.
    assert {launch["kernel"]: launch["copy_bytes"] for launch in launches if launch["copy_bytes"]} == COPY_BYTES
    widths = [launch["copy_bytes"] for launch in launches if launch["kernel"] == "attention_kernel"]
    assert widths == [[16]] * len(widths)
    # Two decodes run side by side on a processor: the number of splits counts on it.
    decodes = [launch for launch in launches if launch["kernel"] == "attention_kernel" and launch["dtype"] != "fp32"]
    decodes = [launch for launch in decodes if launch["constants"]["IS_DECODE_ONLY"]]
    assert 2 * (max(launch["shared_bytes"] for launch in decodes) + 1024) <= PROCESSOR_SHARED[capability]


def _cache(config: pytest.Config) -> Path:
    assert config.cache is not None
    return config.cache.mkdir("triton")
