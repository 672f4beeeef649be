"""Memory that nobody has written holds NaN, and the interpreter multiplies bfloat16, which by itself it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Iterator[None]:
    """torch fills new tensors with NaN where it is to be deterministic; so do outputs and partial sums here."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(4).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widens operands to float32 first, which is exact; the interpreter's own product multiplies their bits."""
    product = InterpreterBuilder.create_dot

    def widened(operand: Any) -> Any:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        bits = operand.data.view(np.uint16).astype(np.uint32) << 16
        return TensorHandle(bits.view(np.float32), tl.float32)

    def widened_product(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return product(self, widened(a), widened(b), *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", widened_product)
