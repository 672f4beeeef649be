"""RMSNorm of a row held in registers. Source: Zhang and Sennrich (1910.07467), equation 4."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    eps,
    HIDDEN_SIZE: tl.constexpr,
    PADDED_SIZE: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
):
    """Grid: rows."""
    row = tl.program_id(0).to(tl.int64) * HIDDEN_SIZE
    dims = tl.arange(0, PADDED_SIZE)
    is_dim = dims < HIDDEN_SIZE
    x = tl.load(x_ptr + row + dims, mask=is_dim, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        x += tl.load(residual_ptr + row + dims, mask=is_dim, other=0.0).to(tl.float32)
        stored = x.to(residual_ptr.dtype.element_ty)
        tl.store(residual_ptr + row + dims, stored, mask=is_dim)
        x = stored.to(tl.float32)
    factor = tl.rsqrt(tl.sum(x * x, 0) / HIDDEN_SIZE + eps)
    weight = tl.load(weight_ptr + dims, mask=is_dim, other=0.0).to(tl.float32)
    tl.store(out_ptr + row + dims, (x * factor * weight).to(out_ptr.dtype.element_ty), mask=is_dim)
