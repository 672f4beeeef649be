"""Paged attention: tiles of query rows against tiles of keys, with a running softmax in base 2.

A tile's rows are (token, query head) pairs of one key/value head, so that a decode's query heads share what is read.
A decode's program has one token and a part of its context; a prefill's has some tokens and all of their context.
Source: Dao, FlashAttention-2 (2307.08691), section 3.1; Dao et al., Flash-Decoding (the split and its sum).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=["num_seqs"],
    do_not_specialize_on_alignment=["query_starts_ptr", "seq_lens_ptr", "block_tables_ptr", "table_stride"],
)
def attention_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    partial_ptr,
    stats_ptr,
    query_starts_ptr,
    seq_lens_ptr,
    block_tables_ptr,
    num_seqs,
    table_stride,
    scale,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    IS_DECODE_ONLY: tl.constexpr,
    DECODE_ROWS: tl.constexpr,
    PREFILL_ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: tiles (sequences where IS_DECODE_ONLY), key/value heads, splits. `scale` contains log2(e)."""
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    if IS_DECODE_ONLY:
        seq = tl.program_id(0)
        _decode(
            query_ptr,
            key_ptr,
            value_ptr,
            out_ptr,
            partial_ptr,
            stats_ptr,
            tl.load(seq_lens_ptr + seq),
            block_tables_ptr + seq.to(tl.int64) * table_stride,
            seq,
            seq,
            kv_head,
            split,
            scale,
            NUM_HEADS,
            NUM_KV_HEADS,
            HEAD_DIM,
            PADDED_DIM,
            BLOCK_SIZE,
            MIN_SPLIT,
            DECODE_ROWS,
            TILE,
        )
    else:
        # The tiles at the end of a chunk have the longest contexts: they start first, so that none is left at the end.
        tile = tl.num_programs(0) - 1 - tl.program_id(0)
        TILE_TOKENS: tl.constexpr = PREFILL_ROWS // (NUM_HEADS // NUM_KV_HEADS)
        seq = _sequence_of_tile(query_starts_ptr, num_seqs, tile, TILE_TOKENS)
        start = tl.load(query_starts_ptr + seq)
        query_len = tl.load(query_starts_ptr + seq + 1) - start
        offset = (tile - start // TILE_TOKENS - seq) * TILE_TOKENS
        seq_len = tl.load(seq_lens_ptr + seq)
        table_ptr = block_tables_ptr + seq.to(tl.int64) * table_stride
        if query_len == 1:
            if offset == 0:
                _decode(
                    query_ptr,
                    key_ptr,
                    value_ptr,
                    out_ptr,
                    partial_ptr,
                    stats_ptr,
                    seq_len,
                    table_ptr,
                    seq,
                    start,
                    kv_head,
                    split,
                    scale,
                    NUM_HEADS,
                    NUM_KV_HEADS,
                    HEAD_DIM,
                    PADDED_DIM,
                    BLOCK_SIZE,
                    MIN_SPLIT,
                    DECODE_ROWS,
                    TILE,
                )
        elif (offset < query_len) & (split == 0):
            _prefill(
                query_ptr,
                key_ptr,
                value_ptr,
                out_ptr,
                seq_len,
                table_ptr,
                start,
                query_len,
                offset,
                kv_head,
                scale,
                NUM_HEADS,
                NUM_KV_HEADS,
                HEAD_DIM,
                PADDED_DIM,
                BLOCK_SIZE,
                PREFILL_ROWS,
                TILE,
            )


@triton.jit(do_not_specialize=["num_splits"], do_not_specialize_on_alignment=["query_starts_ptr", "seq_lens_ptr"])
def sum_splits_kernel(
    partial_ptr,
    stats_ptr,
    out_ptr,
    query_starts_ptr,
    seq_lens_ptr,
    num_splits,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PADDED_SPLITS: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    IS_DECODE_ONLY: tl.constexpr,
    TILE: tl.constexpr,
):
    """Adds up the parts of a decode that was split. Grid: sequences, query heads."""
    seq = tl.program_id(0)
    head = tl.program_id(1)
    seq_len = tl.load(seq_lens_ptr + seq)
    token = seq
    is_decode = True
    if not IS_DECODE_ONLY:
        token = tl.load(query_starts_ptr + seq)
        is_decode = tl.load(query_starts_ptr + seq + 1) - token == 1
    split_len = _split_len(seq_len, num_splits, MIN_SPLIT, TILE)
    if is_decode & (split_len < seq_len):
        splits = tl.arange(0, PADDED_SPLITS)
        dims = tl.arange(0, PADDED_DIM)
        is_dim = dims < HEAD_DIM
        is_split = splits * split_len < seq_len
        part = (seq.to(tl.int64) * NUM_HEADS + head) * num_splits + splits
        peaks = tl.load(stats_ptr + part * 2, mask=is_split, other=float("-inf"))
        totals = tl.load(stats_ptr + part * 2 + 1, mask=is_split, other=0.0)
        rescale = tl.exp2(peaks - tl.max(peaks, 0))
        parts = tl.load(
            partial_ptr + part[:, None] * HEAD_DIM + dims[None, :],
            mask=is_split[:, None] & is_dim[None, :],
            other=0.0,
        )
        out = tl.sum(parts * rescale[:, None], 0) / tl.sum(totals * rescale, 0)
        out_row = out_ptr + (token.to(tl.int64) * NUM_HEADS + head) * HEAD_DIM
        tl.store(out_row + dims, out.to(out_ptr.dtype.element_ty), mask=is_dim)


@triton.jit
def _split_len(seq_len, num_splits, MIN_SPLIT: tl.constexpr, TILE: tl.constexpr):
    """Returns how many keys a split has, a multiple of TILE; the last has fewer, and those behind it none."""
    even = tl.cdiv(tl.cdiv(seq_len, num_splits), TILE) * TILE
    return tl.maximum(even, MIN_SPLIT)


@triton.jit
def _sequence_of_tile(query_starts_ptr, num_seqs, tile, TILE_TOKENS: tl.constexpr):
    """Returns the sequence whose tiles begin last at or before `tile`: those of i at query_starts[i] // tokens + i."""
    CHUNK: tl.constexpr = 128
    num_before = 0
    for first in range(0, num_seqs, CHUNK):
        seqs = first + tl.arange(0, CHUNK)
        is_seq = seqs < num_seqs
        starts = tl.load(query_starts_ptr + seqs, mask=is_seq, other=0)
        num_before += tl.sum((is_seq & (starts // TILE_TOKENS + seqs <= tile)).to(tl.int32), 0)
    return num_before - 1


@triton.jit
def _decode(
    query_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    partial_ptr,
    stats_ptr,
    seq_len,
    table_ptr,
    seq,
    token,
    kv_head,
    split,
    scale,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """One token against its split of the context. A row is a query head."""
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    num_splits = tl.num_programs(2)
    split_len = _split_len(seq_len, num_splits, MIN_SPLIT, TILE)
    first = split * split_len
    # Split 0 runs for a padding sequence too: it writes zeros.
    if (first < seq_len) | (split == 0):
        rows = tl.arange(0, ROWS)
        dims = tl.arange(0, PADDED_DIM)
        heads = kv_head * GROUP + rows
        is_row = (rows < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
        out_offsets = (token.to(tl.int64) * NUM_HEADS + heads[:, None]) * HEAD_DIM + dims[None, :]
        query = tl.load(query_ptr + out_offsets, mask=is_row, other=0.0)
        head_offset = kv_head * BLOCK_SIZE * HEAD_DIM
        acc, total, peak = _attend(
            query,
            tl.zeros([ROWS, PADDED_DIM], tl.float32),
            tl.zeros([ROWS], tl.float32),
            tl.full([ROWS], float("-inf"), tl.float32),
            key_ptr + head_offset,
            value_ptr + head_offset,
            table_ptr,
            first,
            tl.minimum(first + split_len, seq_len),
            tl.full([ROWS], seq_len - 1, tl.int32),
            scale,
            NUM_KV_HEADS,
            HEAD_DIM,
            PADDED_DIM,
            BLOCK_SIZE,
            TILE,
            True,
        )
        if split_len >= seq_len:
            out = acc / tl.where(total > 0, total, 1.0)[:, None]
            tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=is_row)
        else:
            parts = (seq.to(tl.int64) * NUM_HEADS + heads) * num_splits + split
            tl.store(partial_ptr + parts[:, None] * HEAD_DIM + dims[None, :], acc, mask=is_row)
            tl.store(stats_ptr + parts * 2, peak, mask=rows < GROUP)
            tl.store(stats_ptr + parts * 2 + 1, total, mask=rows < GROUP)


@triton.jit
def _prefill(
    query_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    seq_len,
    table_ptr,
    start,
    query_len,
    offset,
    kv_head,
    scale,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Tokens from `offset` of a chunk against all that they see. A row is a token and a query head of the group."""
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    TILE_TOKENS: tl.constexpr = ROWS // GROUP
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, PADDED_DIM)
    tokens = offset + rows // GROUP
    heads = kv_head * GROUP + rows % GROUP
    is_row = ((rows < TILE_TOKENS * GROUP) & (tokens < query_len))[:, None] & (dims < HEAD_DIM)[None, :]
    out_offsets = ((start + tokens).to(tl.int64) * NUM_HEADS + heads)[:, None] * HEAD_DIM + dims[None, :]
    query = tl.load(query_ptr + out_offsets, mask=is_row, other=0.0)
    head_offset = kv_head * BLOCK_SIZE * HEAD_DIM
    num_computed = seq_len - query_len
    # The first token sees the keys up to itself, and so do all; the rest needs the mask.
    num_seen_by_all = (num_computed + offset + 1) // TILE * TILE
    num_seen = tl.minimum(num_computed + offset + TILE_TOKENS, seq_len)
    acc = tl.zeros([ROWS, PADDED_DIM], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    acc, total, peak = _attend(
        query,
        acc,
        total,
        peak,
        key_ptr + head_offset,
        value_ptr + head_offset,
        table_ptr,
        0,
        num_seen_by_all,
        num_computed + tokens,
        scale,
        NUM_KV_HEADS,
        HEAD_DIM,
        PADDED_DIM,
        BLOCK_SIZE,
        TILE,
        False,
    )
    acc, total, peak = _attend(
        query,
        acc,
        total,
        peak,
        key_ptr + head_offset,
        value_ptr + head_offset,
        table_ptr,
        num_seen_by_all,
        num_seen,
        num_computed + tokens,
        scale,
        NUM_KV_HEADS,
        HEAD_DIM,
        PADDED_DIM,
        BLOCK_SIZE,
        TILE,
        True,
    )
    tl.store(out_ptr + out_offsets, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=is_row)


@triton.jit
def _attend(
    query,
    acc,
    total,
    peak,
    key_ptr,
    value_ptr,
    table_ptr,
    first,
    stop,
    positions,
    scale,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    IS_MASKED: tl.constexpr,
):
    """Takes the keys [first, stop) into (acc, total, peak); a row sees those up to its position.

    acc `[rows, PADDED_DIM]` and total `[rows]` are relative to 2**peak. Without the mask all rows see all the keys, and
    their number is a multiple of TILE. Behind `stop` nothing is read: a block's rest may hold anything, NaN included.
    """
    dims = tl.arange(0, PADDED_DIM)
    is_dim = dims < HEAD_DIM
    keys = first + tl.arange(0, TILE)
    blocks = tl.load(table_ptr + keys // BLOCK_SIZE, mask=keys < stop, other=0)
    for _ in range(first, stop, TILE):
        offsets = blocks.to(tl.int64) * (NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM) + keys % BLOCK_SIZE * HEAD_DIM
        # The ids of the next tile's blocks are fetched one turn ahead, so that the loads of keys wait for nothing and
        # the compiler can start them several turns ahead.
        next_keys = keys + TILE
        blocks = tl.load(table_ptr + next_keys // BLOCK_SIZE, mask=next_keys < stop, other=0)
        is_key = keys < stop if IS_MASKED else tl.full([TILE], True, tl.int1)
        key = tl.load(key_ptr + offsets[None, :] + dims[:, None], mask=is_key[None, :] & is_dim[:, None], other=0.0)
        # Three products of tensor-float parts: float32 to about 21 bits, on the matrix units. Others are not split.
        scores = tl.dot(query, key, input_precision="tf32x3") * scale
        if IS_MASKED:
            scores = tl.where(is_key[None, :] & (keys[None, :] <= positions[:, None]), scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        rescale = tl.exp2(peak - new_peak)
        weights = tl.exp2(scores - new_peak[:, None])
        total = total * rescale + tl.sum(weights, 1)
        value = tl.load(value_ptr + offsets[:, None] + dims[None, :], mask=is_key[:, None] & is_dim[None, :], other=0.0)
        acc = tl.dot(weights.to(value.dtype), value, acc * rescale[:, None], input_precision="tf32x3")
        peak = new_peak
        keys = next_keys
    return acc, total, peak
