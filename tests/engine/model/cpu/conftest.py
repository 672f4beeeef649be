"""Kernels in C are tested where there is a compiler, and a CPU that they are for; there they must compile."""

from __future__ import annotations

import pytest

from kvscope.engine.model.cpu.native_kernels import NativeKernels
from kvscope.engine.model.cpu.native_library import unavailable_reason


@pytest.fixture(scope="session")
def kernels() -> NativeKernels:
    reason = unavailable_reason()
    if reason is not None and reason.startswith(("no C compiler", "the CPU has no AVX-512")):
        pytest.skip(f"no native kernels: {reason}")
    assert reason is None
    return NativeKernels(num_threads=2)
