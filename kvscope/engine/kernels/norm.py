"""RMSNorm of rows, with the residual stream's addition in the same pass."""

from __future__ import annotations

import torch

from kvscope.engine.kernels.device.norm import rms_norm_kernel
from kvscope.engine.kernels.launch import Launch, next_power_of_2, output, require, require_contiguous, require_dtype

MAX_HIDDEN_SIZE = 16384


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
    require_dtype("x", x)
    require_contiguous("x", x)
    if x.ndim != 2 or not 1 <= x.shape[1] <= MAX_HIDDEN_SIZE:
        raise ValueError(f"x is {list(x.shape)}; [num_rows, hidden_size up to {MAX_HIDDEN_SIZE}] is needed")
    num_rows, hidden_size = x.shape
    require("weight", weight, (hidden_size,), x.dtype, x.device)
    if residual is not None:
        require("residual", residual, (num_rows, hidden_size), x.dtype, x.device)
    out = output(out, (num_rows, hidden_size), x)
    padded_size = next_power_of_2(hidden_size)
    Launch(
        kernel=rms_norm_kernel,
        grid=(num_rows, 1, 1),
        arguments={"x_ptr": x, "residual_ptr": residual, "weight_ptr": weight, "out_ptr": out, "eps": eps},
        constants={
            "HIDDEN_SIZE": hidden_size,
            "PADDED_SIZE": padded_size,
            "HAS_RESIDUAL": residual is not None,
        },
        # 8 elements a thread are a load of 16 bytes; above 8192 a thread takes several.
        num_warps=min(max(padded_size // 256, 1), 16),
        num_stages=1,
    ).run()
    return out
