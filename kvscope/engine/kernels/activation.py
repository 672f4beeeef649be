"""The gate of the feed-forward layer."""

from __future__ import annotations

import torch

from kvscope.engine.kernels.device.activation import silu_and_mul_kernel
from kvscope.engine.kernels.launch import Launch, output, require_contiguous, require_dtype

_TILE = 1024
"""Elements a program: 8 a thread of four warps, a load of 16 bytes of each half."""


def silu_and_mul(gate_up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Returns `silu(gate) * up` of rows that hold first the gate, then up, computed in float32.

    gate_up: `[num_rows, 2 * intermediate_size]`, contiguous; out and the result: `[num_rows, intermediate_size]`.

    Raises:
        ValueError: a shape, dtype, layout or device is not as above.
    """
    require_dtype("gate_up", gate_up)
    require_contiguous("gate_up", gate_up)
    if gate_up.ndim != 2 or gate_up.shape[1] % 2:
        raise ValueError(f"gate_up is {list(gate_up.shape)}; [num_rows, 2 * intermediate_size] is needed")
    out = output(out, (gate_up.shape[0], gate_up.shape[1] // 2), gate_up)
    num_rows, intermediate_size = out.shape
    Launch(
        kernel=silu_and_mul_kernel,
        grid=(num_rows, -(-intermediate_size // _TILE), 1),
        arguments={"gate_up_ptr": gate_up, "out_ptr": out},
        constants={"INTERMEDIATE_SIZE": intermediate_size, "TILE": _TILE},
        num_warps=4,
        num_stages=1,
    ).run()
    return out
