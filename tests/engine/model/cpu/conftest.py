"""Kernels in C are tested where there is a compiler."""

from __future__ import annotations

import pytest

from kvscope.engine.model.cpu.native_kernels import NativeKernels
from kvscope.engine.model.cpu.native_library import unavailable_reason


@pytest.fixture(scope="session")
def kernels() -> NativeKernels:
    if reason := unavailable_reason():
        pytest.skip(f"no native kernels: {reason}")
    return NativeKernels(num_threads=2)
