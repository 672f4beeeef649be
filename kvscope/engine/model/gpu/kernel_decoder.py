"""The forward pass on Triton's kernels, over the weights of a loaded `Decoder` and its cache."""

from __future__ import annotations

import torch

from kvscope.engine.kernels.attention import AttentionBatch
from kvscope.engine.model.attention import PagedKVCache
from kvscope.engine.model.decoder import Decoder
from kvscope.engine.model.fused_decoder import forward
from kvscope.engine.model.gpu.kernel_set import Kernels
from kvscope.engine.model.gpu.step_batch import DecoderInputs


class KernelDecoder:
    """A decoder whose every operation may be recorded in a graph: no value is read on the host."""

    def __init__(self, decoder: Decoder, kernels: Kernels, cache: PagedKVCache) -> None:
        self._decoder = decoder
        self._kernels = kernels
        self._caches = list(zip(cache.key, cache.value, strict=True))
        self._cos, self._sin = (table.to(decoder.device).contiguous() for table in decoder.rotary)

    def forward(
        self,
        inputs: DecoderInputs,
        batch: AttentionBatch,
        num_splits: int | None = None,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Writes the tokens' keys and values and returns hidden states `[num_rows, hidden_size]`, normed.

        num_splits: as in `kernels.attention.paged_attention`; rows: as in `fused_decoder.forward`.
        """
        config, kernels = self._decoder.config, self._kernels

        def attend(layer: int, qkv: torch.Tensor, qk_norm: torch.Tensor | None) -> torch.Tensor:
            key, value = self._caches[layer]
            query = kernels.rotate_and_cache(
                qkv,
                inputs.positions,
                self._cos,
                self._sin,
                key,
                value,
                inputs.slot_mapping,
                num_heads=config.num_attention_heads,
                qk_norm=qk_norm,
                eps=config.rms_norm_eps,
            )
            scale = config.head_dim**-0.5
            attended = kernels.paged_attention(query, key, value, batch, scale=scale, num_splits=num_splits)
            return attended.view(len(qkv), -1)

        return forward(self._decoder, kernels, attend, inputs.token_ids, rows)
