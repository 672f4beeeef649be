"""Matrix products with fixed weights, each laid out for the machine it runs on."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn.functional import linear


class Linear(Protocol):
    """`x [num_rows, in_features]` -> `x @ weight.T + bias`, `[num_rows, out_features]`."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


class PlainLinear:
    """torch's own product; used for float32, where nothing is gained by another layout, and on GPUs."""

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self._weight, self._bias)


class PackedLinear:
    """oneDNN's product on weights reordered once into its own layout.

    `linear` would reorder bfloat16 weights in every call: on a Zen 4 core that doubles the time of a batch of one.
    """

    __slots__ = ("_bias", "_weight")

    _BATCH_HINT = 32
    """The layout may depend on the number of rows; it is right for any, and best near this one."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), self._BATCH_HINT)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return out


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Returns the quickest product there is for `weight [out_features, in_features]` on its device, in its dtype."""
    if weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and _can_pack():
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


def _can_pack() -> bool:
    """True where torch has oneDNN, with the operators that its own compiler uses, on a CPU that multiplies bfloat16."""
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
