"""The interpreter's one gap that the kernels meet: its product of bfloat16 multiplies the bits as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


@pytest.fixture(autouse=True)
def _bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widens bfloat16 operands to float32 first, which is exact."""
    product = InterpreterBuilder.create_dot

    def widened(operand: Any) -> Any:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        bits = operand.data.view(np.uint16).astype(np.uint32) << 16
        return TensorHandle(bits.view(np.float32), tl.float32)

    def widened_product(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return product(self, widened(a), widened(b), *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", widened_product)
