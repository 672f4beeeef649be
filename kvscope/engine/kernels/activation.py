"""The gate of the feed-forward layer."""

from __future__ import annotations

import torch


def silu_and_mul(gate_up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Returns `silu(gate) * up` of rows that hold first the gate, then up, computed in float32.

    gate_up: `[num_rows, 2 * intermediate_size]`, contiguous; out and the result: `[num_rows, intermediate_size]`.

    Raises:
        ValueError: a shape, dtype, layout or device is not as above.
    """
    raise NotImplementedError
