"""The decoder's forward pass on fused kernels, once for those in Triton and those in C.

The same order of operations as `Decoder.forward`, which is the oracle of both. Fused are the residual's addition with
the norm behind it, all that stands between the product that gives q, k and v and the one behind attention, and the gate
with its product. Products are torch's. No value is read on the host, so that a pass can be recorded in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn.functional import embedding

from kvscope.engine.model.decoder import Decoder

Attend = Callable[[int, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""Attention of a step's tokens in a layer: (the layer's index, qkv, qk_norm) -> `[num_tokens, num_heads * head_dim]`.

Norms the heads of q and k where qk_norm is given, rotates them, writes k and v to the layer's cache, and attends.
qkv: `[num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]`.
"""


class RowKernels(Protocol):
    """Kernels that know nothing of a step: each row is by itself."""

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, *, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As `kernels.norm.rms_norm`."""
        ...

    def silu_and_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """As `kernels.activation.silu_and_mul`."""
        ...


def forward(
    decoder: Decoder,
    kernels: RowKernels,
    attend: Attend,
    token_ids: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> torch.Tensor:
    """Writes the tokens' keys and values and returns hidden states `[num_rows, hidden_size]`, behind the final norm.

    token_ids: `[num_tokens]`. rows: `[num_rows]`, which tokens' states are wanted, None for all; behind the last
    layer's attention only they go on.
    """
    layers, eps = decoder.layers, decoder.config.rms_norm_eps
    following_norms = [*(layer.input_norm for layer in layers[1:]), decoder.final_norm]
    hidden = embedding(token_ids, decoder.embedding_weight)
    normed = kernels.rms_norm(hidden, layers[0].input_norm, eps)
    for index, (layer, following_norm) in enumerate(zip(layers, following_norms, strict=True)):
        attended = attend(index, layer.qkv(normed), layer.qk_norm)
        if rows is not None and index == len(layers) - 1:
            attended, hidden = attended.index_select(0, rows), hidden.index_select(0, rows)
        normed = kernels.rms_norm(layer.attention_out(attended), layer.post_attention_norm, eps, residual=hidden)
        out = layer.down(kernels.silu_and_mul(layer.gate_up(normed)))
        normed = kernels.rms_norm(out, following_norm, eps, residual=hidden)
    return normed
