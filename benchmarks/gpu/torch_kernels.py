"""The kernels once more, in plain torch, written from what `kvscope.engine.kernels` promises: slow and obvious.

Oracles of the GPU check; and the runner is tested with them, apart from Triton and quickly.
"""

from __future__ import annotations

import torch

from kvscope.engine.kernels.attention import AttentionBatch
from kvscope.engine.kernels.sampling import SamplingRows


class TorchKernels:
    """`kernel_set.Kernels` on any device."""

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, *, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        if residual is not None:
            x = residual.add_(x)
        values = x.float()
        return (values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)

    def rotate_and_cache(
        self,
        qkv: torch.Tensor,
        positions: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        *,
        num_heads: int,
        qk_norm: torch.Tensor | None = None,
        eps: float = 1e-6,
    ) -> torch.Tensor:
        num_kv_heads, block_size, head_dim = key_cache.shape[1:]
        heads = qkv.view(len(qkv), -1, head_dim)
        rotated = heads[:, : num_heads + num_kv_heads]
        if qk_norm is not None:
            rotated = self.rms_norm(rotated, rotated.new_ones(head_dim), eps) * qk_norm
        first, second = rotated.chunk(2, -1)
        c, s = cos[positions][:, None], sin[positions][:, None]
        rotated = torch.cat([first * c - second * s, second * c + first * s], -1).to(qkv.dtype)
        for token, slot in enumerate(slot_mapping.tolist()):
            if slot >= 0:
                key_cache[slot // block_size, :, slot % block_size] = rotated[token, num_heads:]
                value_cache[slot // block_size, :, slot % block_size] = heads[token, num_heads + num_kv_heads :]
        return rotated[:, :num_heads].contiguous()

    def paged_attention(
        self,
        query: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        batch: AttentionBatch,
        *,
        scale: float,
        num_splits: int | None = None,
    ) -> torch.Tensor:
        out = torch.full_like(query, torch.nan)
        is_decode = batch.max_query_len == 1
        starts = list(range(batch.num_seqs + 1)) if is_decode else batch.query_starts.tolist()
        for sequence, seq_len in enumerate(batch.seq_lens.tolist()):
            begin, end = starts[sequence], starts[sequence + 1]
            assert seq_len <= batch.max_seq_len
            assert seq_len == 0 or end - begin <= batch.max_query_len
            if seq_len == 0:
                out[begin:end] = 0
                continue
            block_ids = batch.block_tables[sequence, : -(-seq_len // key_cache.shape[2])].long()
            keys, values = (
                cache[block_ids]
                .transpose(0, 1)
                .flatten(1, 2)[:, :seq_len]
                .repeat_interleave(query.shape[1] // cache.shape[1], 0)
                for cache in (key_cache, value_cache)
            )
            positions = torch.arange(seq_len, device=query.device)
            visible = positions <= positions[seq_len - (end - begin) :, None]
            scores = (query[begin:end].transpose(0, 1) @ keys.transpose(1, 2) * scale).masked_fill(~visible, -torch.inf)
            out[begin:end] = (scores.softmax(-1) @ values).transpose(0, 1)
        return out

    def silu_and_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up

    def sample(self, logits: torch.Tensor, rows: SamplingRows | None) -> torch.Tensor:
        """Greedy, or a draw that depends on (seed, index) alone; knows no filters."""
        token_ids = logits.argmax(-1)
        if rows is not None:
            for row, temperature in enumerate(rows.temperatures.tolist()):
                if temperature > 0:
                    seed = int(rows.seeds[row]) * 7919 + int(rows.indices[row])
                    generator = torch.Generator().manual_seed(seed % (1 << 62))
                    probabilities = (logits[row].float() / temperature).softmax(-1)
                    token_ids[row] = torch.multinomial(probabilities, 1, generator=generator)[0]
        return token_ids
