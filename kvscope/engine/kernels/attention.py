"""Attention of a step's tokens over a paged KV cache, in one launch for prefill chunks and decodes together.

The step is a concatenation of its sequences' new tokens, in any order. Where each has only one (`max_query_len` 1),
token i belongs to sequence i, and padding sequences (length 0) may stand among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBatch:
    """What attention must know of a step. The tensors lie on the device and may be views of larger static buffers.

    The two bounds are the host's: they decide the launch, and tensors' values may change beneath them (CUDA graphs).
    """

    query_starts: torch.Tensor
    """int32 `[num_seqs + 1]`: sequence i's new tokens are `[query_starts[i], query_starts[i + 1])`; padding has none.
    Not read where `max_query_len` is 1."""
    seq_lens: torch.Tensor
    """int32 `[num_seqs]`: tokens in the cache after this step, the new ones included; 0 for padding."""
    block_tables: torch.Tensor
    """int32 `[num_seqs, max_num_blocks]`, rows contiguous: block ids. Entries past a sequence's length are not read."""
    slot_mapping: torch.Tensor
    """int64 `[num_tokens]`: block_id * block_size + offset of each new token; -1 for padding."""
    max_query_len: int
    """No sequence has more new tokens. 1 says that token i is sequence i's."""
    max_seq_len: int
    """No sequence is longer."""

    @property
    def num_seqs(self) -> int:
        return self.seq_lens.shape[0]


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    batch: AttentionBatch,
    *,
    scale: float,
    num_splits: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns attention of the step's tokens over their sequences' keys and values, those of this step included.

    Args:
        query: `[num_tokens, num_heads, head_dim]`, contiguous; head_dim 64, 80, 96 or 128. A token at offset i of its
            sequence's n new ones sees the first `seq_len - n + i + 1` tokens.
        key_cache, value_cache: one layer, `[num_blocks, num_kv_heads, block_size, head_dim]`, contiguous, of the
            query's dtype; block_size 8, 16, 32 or 64. num_heads is a multiple of num_kv_heads, at most 64 times.
        scale: factor of the scores, usually `head_dim ** -0.5`.
        num_splits: into how many parts the context of a decode is cut at most, 1 to 64; by default as many as it takes
            to occupy the GPU. The parts are added up in float32 by a second launch.
        out: `[num_tokens, num_heads, head_dim]` to write to; by default a new tensor.

    Returns:
        `out`. Rows of decodes of length 0 are zero; tokens past `query_starts[-1]` are not written.

    Raises:
        ValueError: a shape, dtype, layout or device is not as above.
    """
    raise NotImplementedError
