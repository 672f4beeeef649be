"""What stands between the product that gives q, k and v and attention, in one launch."""

from __future__ import annotations

import torch


def rotate_and_cache(
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
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns the rotated queries and writes the rotated keys and the values to their slots.

    Args:
        qkv: `[num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]`, contiguous: a token's query heads, key heads,
            value heads.
        positions: int64 `[num_tokens]`, each below the tables' num_positions.
        cos, sin: `[num_positions, head_dim // 2]`, contiguous, any float dtype (float32 is the most exact). Pairs are
            dimensions i and i + head_dim/2.
        key_cache, value_cache: one layer, `[num_blocks, num_kv_heads, block_size, head_dim]`, contiguous, qkv's dtype.
        slot_mapping: int64 `[num_tokens]`: block_id * block_size + offset; a token with -1 is not written, its query
            is rotated all the same.
        qk_norm: `[num_heads + num_kv_heads, head_dim]`: weights of an RMSNorm of each query and key head with `eps`,
            before the rotation (Qwen3); None for no norm.
        out: `[num_tokens, num_heads, head_dim]` to write to; by default a new tensor.

    Raises:
        ValueError: a shape, dtype, layout or device is not as above.
    """
    raise NotImplementedError
