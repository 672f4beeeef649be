"""RMSNorm of rows, with the residual stream's addition in the same pass."""

from __future__ import annotations

import torch


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns `x / sqrt(mean(x²) + eps) * weight` for each row, computed in float32.

    Args:
        x: `[num_rows, hidden_size]`, contiguous, hidden_size up to 16384.
        weight: `[hidden_size]`.
        residual: `[num_rows, hidden_size]`, of x's dtype. Where it is given, x is added to it in place, and the norm is
            of that sum as it is stored (rounded to the dtype, as the torch path does).
        out: like x, and may be x; by default a new tensor.

    Raises:
        ValueError: a shape, dtype, layout or device is not as above.
    """
    raise NotImplementedError
