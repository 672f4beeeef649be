"""How far from an oracle in float64 a kernel's output may be, and outputs that show what is written beside them."""

from __future__ import annotations

import math

import torch

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""A few units in the last place of numbers near 1. The interpreter cuts bfloat16 off, it does not round."""


_GUARD = 2048
"""Numbers on each side: more than a tile of any kernel."""


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Fails where a number is not near; NaN is near NaN alone."""
    tolerance = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


def guarded_output(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor of NaN in the middle of others; `assert_guards` looks at those."""
    return torch.full((math.prod(shape) + 2 * _GUARD,), float("nan"), dtype=dtype)[_GUARD:-_GUARD].view(shape)


def assert_guards(out: torch.Tensor) -> None:
    """Fails where something was written before or behind a guarded output."""
    whole = torch.empty(0, dtype=out.dtype).set_(out.untyped_storage())
    assert whole[:_GUARD].isnan().all()
    assert whole[-_GUARD:].isnan().all()
