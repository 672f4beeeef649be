"""How far from an oracle in float64 a kernel's output may be."""

from __future__ import annotations

import torch

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""A few units in the last place of numbers near 1. The interpreter cuts bfloat16 off, it does not round."""


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Fails where a number is not near; NaN is near NaN alone."""
    tolerance = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
