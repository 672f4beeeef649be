"""What stands between the product that gives q, k and v and attention, in one launch."""

from __future__ import annotations

import torch

from kvscope.engine.kernels.attention import BLOCK_SIZES, HEAD_DIMS
from kvscope.engine.kernels.device.rotary import rotate_and_cache_kernel
from kvscope.engine.kernels.launch import Launch, next_power_of_2, output, require, require_contiguous, require_dtype

_TILE_HEADS = 16
"""Heads a program: with four warps 8 elements a thread and half, and few enough that one token occupies several."""


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
    num_kv_heads, head_dim = _check_cache(qkv, key_cache, value_cache, num_heads)
    _check_tokens(qkv, positions, slot_mapping)
    _check_tables(qkv, cos, sin, head_dim)
    if qk_norm is not None:
        require("qk_norm", qk_norm, (num_heads + num_kv_heads, head_dim), qkv.dtype, qkv.device)
    out = output(out, (len(qkv), num_heads, head_dim), qkv)
    Launch(
        kernel=rotate_and_cache_kernel,
        grid=(len(qkv), -(-(num_heads + 2 * num_kv_heads) // _TILE_HEADS), 1),
        arguments={
            "qkv_ptr": qkv,
            "positions_ptr": positions,
            "cos_ptr": cos,
            "sin_ptr": sin,
            "qk_norm_ptr": qk_norm,
            "slot_mapping_ptr": slot_mapping,
            "query_ptr": out,
            "key_ptr": key_cache,
            "value_ptr": value_cache,
            "eps": eps,
        },
        constants={
            "NUM_HEADS": num_heads,
            "NUM_KV_HEADS": num_kv_heads,
            "HEAD_DIM": head_dim,
            "PADDED_HALF": next_power_of_2(head_dim // 2),
            "BLOCK_SIZE": key_cache.shape[2],
            "HAS_NORM": qk_norm is not None,
            "TILE_HEADS": _TILE_HEADS,
        },
        num_warps=4,
        num_stages=1,
    ).run()
    return out


def _check_cache(
    qkv: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, num_heads: int
) -> tuple[int, int]:
    """Returns num_kv_heads and head_dim."""
    require_dtype("qkv", qkv)
    require_contiguous("qkv", qkv)
    if key_cache.ndim != 4:
        raise ValueError(
            f"key_cache is {list(key_cache.shape)}; [num_blocks, num_kv_heads, block_size, head_dim] is needed"
        )
    _, num_kv_heads, block_size, head_dim = key_cache.shape
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim is {head_dim}; one of {HEAD_DIMS} is needed")
    if block_size not in BLOCK_SIZES:
        raise ValueError(f"block_size is {block_size}; one of {BLOCK_SIZES} is needed")
    width = (num_heads + 2 * num_kv_heads) * head_dim
    if qkv.ndim != 2 or qkv.shape[1] != width:
        raise ValueError(f"qkv is {list(qkv.shape)}; [num_tokens, {width}] is needed")
    require("key_cache", key_cache, tuple(key_cache.shape), qkv.dtype, qkv.device)
    require("value_cache", value_cache, tuple(key_cache.shape), qkv.dtype, qkv.device)
    return num_kv_heads, head_dim


def _check_tokens(qkv: torch.Tensor, positions: torch.Tensor, slot_mapping: torch.Tensor) -> None:
    num_tokens = qkv.shape[0]
    require("positions", positions, (num_tokens,), torch.int64, qkv.device)
    require("slot_mapping", slot_mapping, (num_tokens,), torch.int64, qkv.device)


def _check_tables(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, head_dim: int) -> None:
    if cos.ndim != 2 or cos.shape[1] != head_dim // 2:
        raise ValueError(f"cos is {list(cos.shape)}; [num_positions, {head_dim // 2}] is needed")
    require_dtype("cos", cos)
    require("cos", cos, tuple(cos.shape), cos.dtype, qkv.device)
    require("sin", sin, tuple(cos.shape), cos.dtype, qkv.device)
