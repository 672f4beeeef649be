"""Norm, rotation and cache write of some heads of one token.

Source: Su et al., RoFormer (2104.09864), section 3.4.2, with pairs of dimensions i and i + head_dim/2.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize_on_alignment=["positions_ptr", "slot_mapping_ptr"])
def rotate_and_cache_kernel(
    qkv_ptr,
    positions_ptr,
    cos_ptr,
    sin_ptr,
    qk_norm_ptr,
    slot_mapping_ptr,
    query_ptr,
    key_ptr,
    value_ptr,
    eps,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_HALF: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HAS_NORM: tl.constexpr,
    TILE_HEADS: tl.constexpr,
):
    """Grid: tokens, tiles of the token's query, key and value heads. A head is worked on as its two halves."""
    HALF: tl.constexpr = HEAD_DIM // 2
    NUM_ROTATED: tl.constexpr = NUM_HEADS + NUM_KV_HEADS
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * TILE_HEADS + tl.arange(0, TILE_HEADS)
    dims = tl.arange(0, PADDED_HALF)
    is_dim = dims < HALF
    is_rotated = (heads < NUM_ROTATED)[:, None] & is_dim[None, :]
    is_head = (heads < NUM_ROTATED + NUM_KV_HEADS)[:, None] & is_dim[None, :]
    offsets = heads[:, None] * HEAD_DIM + dims[None, :]
    head_ptr = qkv_ptr + token * ((NUM_ROTATED + NUM_KV_HEADS) * HEAD_DIM) + offsets
    low_in = tl.load(head_ptr, mask=is_head, other=0.0)
    high_in = tl.load(head_ptr + HALF, mask=is_head, other=0.0)
    low, high = low_in.to(tl.float32), high_in.to(tl.float32)
    if HAS_NORM:
        factor = tl.rsqrt((tl.sum(low * low, 1) + tl.sum(high * high, 1)) / HEAD_DIM + eps)[:, None]
        low *= factor * tl.load(qk_norm_ptr + offsets, mask=is_rotated, other=0.0).to(tl.float32)
        high *= factor * tl.load(qk_norm_ptr + offsets + HALF, mask=is_rotated, other=0.0).to(tl.float32)
    angle = tl.load(positions_ptr + token) * HALF + dims
    cos = tl.load(cos_ptr + angle, mask=is_dim, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + angle, mask=is_dim, other=0.0).to(tl.float32)[None, :]
    low_out = (low * cos - high * sin).to(low_in.dtype)
    high_out = (high * cos + low * sin).to(low_in.dtype)

    out_ptr = query_ptr + token * (NUM_HEADS * HEAD_DIM) + offsets
    is_query = (heads < NUM_HEADS)[:, None] & is_dim[None, :]
    tl.store(out_ptr, low_out, mask=is_query)
    tl.store(out_ptr + HALF, high_out, mask=is_query)

    slot = tl.load(slot_mapping_ptr + token)
    if slot >= 0:
        block, place = slot // BLOCK_SIZE, slot % BLOCK_SIZE
        is_key = (heads >= NUM_HEADS)[:, None] & is_rotated
        kv_heads = heads - NUM_HEADS
        key_row = (block * NUM_KV_HEADS + kv_heads[:, None]) * BLOCK_SIZE + place
        key_out = key_ptr + key_row * HEAD_DIM + dims[None, :]
        tl.store(key_out, low_out, mask=is_key)
        tl.store(key_out + HALF, high_out, mask=is_key)
        is_value = (heads >= NUM_ROTATED)[:, None] & is_head
        value_out = value_ptr + (key_row - NUM_KV_HEADS * BLOCK_SIZE) * HEAD_DIM + dims[None, :]
        tl.store(value_out, low_in, mask=is_value)
        tl.store(value_out + HALF, high_in, mask=is_value)
