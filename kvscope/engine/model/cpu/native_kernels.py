"""What `rows.c` and `attention.c` do, as functions over tensors: bfloat16, contiguous, on the CPU.

Meanings and shapes are those of `kvscope.engine.kernels`; torch's operations are the oracle. Callers make sure of
dtypes and layouts once (`problem_of`): checks of every call would cost as much as the work of a batch of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvscope.engine.model.config import ModelConfig
from kvscope.engine.model.cpu.native_library import native_library, unavailable_reason

_MAX_HEAD_DIM = 256
_MAX_HEADS_PER_KV_HEAD = 96
_LANES = 16


def problem_of(config: ModelConfig, dtype: torch.dtype) -> str | None:
    """Returns what keeps the kernels from computing this model on this machine, None where nothing does."""
    if dtype != torch.bfloat16:
        return f"kvscope's own kernels have no {str(dtype).removeprefix('torch.')}"
    heads = config.num_attention_heads // config.num_key_value_heads
    if config.head_dim % (2 * _LANES):
        return f"kvscope's own kernels have no head_dim {config.head_dim}: a multiple of {2 * _LANES} is needed"
    if config.head_dim > _MAX_HEAD_DIM or heads > _MAX_HEADS_PER_KV_HEAD:
        return f"kvscope's own kernels have no {heads} heads of {config.head_dim} to a key/value head"
    for name in ("hidden_size", "intermediate_size"):
        if getattr(config, name) % _LANES:
            return f"kvscope's own kernels have no {name} {getattr(config, name)}: a multiple of {_LANES} is needed"
    return unavailable_reason()


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedBatch:
    """What a step's kernels must know of its sequences; each one's tokens are those between two starts."""

    positions: torch.Tensor
    """int64 `[num_tokens]`."""
    slot_mapping: torch.Tensor
    """int64 `[num_tokens]`: block_id * block_size + offset, where each token's keys and values go."""
    query_starts: torch.Tensor
    """int32 `[num_seqs + 1]`."""
    seq_lens: torch.Tensor
    """int32 `[num_seqs]`: with the step's tokens."""
    block_ids: torch.Tensor
    """int32 `[num_entries]`: the sequences' block tables, one behind the other."""
    table_starts: torch.Tensor
    """int64 `[num_seqs]`: where each one's table begins."""


class NativeKernels:
    """The library, for one number of threads."""

    def __init__(self, num_threads: int) -> None:
        self._library = native_library()
        self._num_threads = num_threads

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, *, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns the norm of x `[num_tokens, size]`; with a residual, x is added to it in place and that is normed."""
        out = torch.empty_like(x)
        num_rows, size = x.shape
        self._library.rms_norm(
            x.data_ptr(),
            None if residual is None else residual.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            num_rows,
            size,
            eps,
            self._num_threads,
        )
        return out

    def silu_and_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Returns silu(gate) * up `[num_tokens, size]` of gate_up `[num_tokens, 2 * size]`."""
        num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
        out = gate_up.new_empty(num_rows, size)
        self._library.silu_and_mul(gate_up.data_ptr(), out.data_ptr(), num_rows, size, self._num_threads)
        return out

    def rotate_and_cache(
        self,
        qkv: torch.Tensor,
        batch: RaggedBatch,
        cos: torch.Tensor,
        sin: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        *,
        num_heads: int,
        qk_norm: torch.Tensor | None,
        eps: float,
    ) -> torch.Tensor:
        """Returns rotated queries `[num_tokens, num_heads, head_dim]`; writes keys and values to their slots.

        cos, sin: float32 `[num_positions, head_dim // 2]`; caches: one layer's.
        """
        _, num_kv_heads, block_size, head_dim = key_cache.shape
        query = qkv.new_empty(len(qkv), num_heads, head_dim)
        self._library.rotate_and_cache(
            qkv.data_ptr(),
            batch.positions.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            key_cache.data_ptr(),
            value_cache.data_ptr(),
            batch.slot_mapping.data_ptr(),
            None if qk_norm is None else qk_norm.data_ptr(),
            query.data_ptr(),
            len(qkv),
            num_heads,
            num_kv_heads,
            head_dim,
            block_size,
            eps,
            self._num_threads,
        )
        return query

    def paged_attention(
        self,
        query: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        batch: RaggedBatch,
        *,
        scale: float,
    ) -> torch.Tensor:
        """Returns attention `[num_tokens, num_heads, head_dim]` of all the step's tokens over their sequences."""
        out = torch.empty_like(query)
        _, num_kv_heads, block_size, head_dim = key_cache.shape
        self._library.paged_attention(
            query.data_ptr(),
            key_cache.data_ptr(),
            value_cache.data_ptr(),
            batch.query_starts.data_ptr(),
            batch.seq_lens.data_ptr(),
            batch.block_ids.data_ptr(),
            batch.table_starts.data_ptr(),
            out.data_ptr(),
            len(batch.seq_lens),
            query.shape[1],
            num_kv_heads,
            head_dim,
            block_size,
            scale,
            self._num_threads,
        )
        return out
