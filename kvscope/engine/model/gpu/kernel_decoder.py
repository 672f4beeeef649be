"""The decoder's forward pass on Triton's kernels, over the weights of a loaded `Decoder`.

The same order of operations as `Decoder.forward`; what is fused: the residual's addition with the norm behind it, norm
and rotation of q and k with the write to the cache, and the gate with its product. Products are torch's.
"""

from __future__ import annotations

import torch
from torch.nn.functional import embedding

from kvscope.engine.kernels.attention import AttentionBatch
from kvscope.engine.model.attention import PagedKVCache
from kvscope.engine.model.decoder import Decoder
from kvscope.engine.model.gpu.kernel_set import Kernels
from kvscope.engine.model.gpu.step_batch import DecoderInputs


class KernelDecoder:
    """A decoder whose every operation may be recorded in a graph: no value is read on the host."""

    def __init__(self, decoder: Decoder, kernels: Kernels, cache: PagedKVCache) -> None:
        self._decoder = decoder
        self._kernels = kernels
        self._cache = cache
        self._cos, self._sin = (table.to(decoder.device).contiguous() for table in decoder.rotary)

    def forward(self, inputs: DecoderInputs, batch: AttentionBatch, num_splits: int | None = None) -> torch.Tensor:
        """Writes the tokens' keys and values and returns their hidden states `[num_tokens, hidden_size]`, normed.

        num_splits: as in `kernels.attention.paged_attention`.
        """
        decoder, config, kernels, cache = self._decoder, self._decoder.config, self._kernels, self._cache
        eps, scale = config.rms_norm_eps, config.head_dim**-0.5
        num_tokens = len(inputs.token_ids)
        following_norms = [layer.input_norm for layer in decoder.layers[1:]] + [decoder.final_norm]
        hidden = embedding(inputs.token_ids, decoder.embedding_weight)
        normed = kernels.rms_norm(hidden, decoder.layers[0].input_norm, eps)
        for layer, key, value, following_norm in zip(
            decoder.layers, cache.key, cache.value, following_norms, strict=True
        ):
            query = kernels.rotate_and_cache(
                layer.qkv(normed),
                inputs.positions,
                self._cos,
                self._sin,
                key,
                value,
                inputs.slot_mapping,
                num_heads=config.num_attention_heads,
                qk_norm=layer.qk_norm,
                eps=eps,
            )
            attended = kernels.paged_attention(query, key, value, batch, scale=scale, num_splits=num_splits)
            out = layer.attention_out(attended.view(num_tokens, -1))
            normed = kernels.rms_norm(out, layer.post_attention_norm, eps, residual=hidden)
            out = layer.down(kernels.silu_and_mul(layer.gate_up(normed)))
            normed = kernels.rms_norm(out, following_norm, eps, residual=hidden)
        return normed
