"""SwiGLU's gate, element by element. Source: Shazeer (2002.05202), equation 6."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def silu_and_mul_kernel(
    gate_up_ptr,
    out_ptr,
    INTERMEDIATE_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: rows, tiles of a row."""
    row = tl.program_id(0).to(tl.int64)
    dims = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_dim = dims < INTERMEDIATE_SIZE
    gate_ptr = gate_up_ptr + row * (2 * INTERMEDIATE_SIZE) + dims
    gate = tl.load(gate_ptr, mask=is_dim, other=0.0).to(tl.float32)
    up = tl.load(gate_ptr + INTERMEDIATE_SIZE, mask=is_dim, other=0.0).to(tl.float32)
    # exp of a large negative gate's opposite is inf, and the quotient 0, as it should be.
    out = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * INTERMEDIATE_SIZE + dims, out.to(out_ptr.dtype.element_ty), mask=is_dim)
