"""Attention of a step's tokens over a paged KV cache, in one launch for prefill chunks and decodes together.

The step is a concatenation of its sequences' new tokens, in any order. Where each has only one (`max_query_len` 1),
token i belongs to sequence i, and padding sequences (length 0) may stand among them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch

from kvscope.engine.kernels.device.attention import attention_kernel, sum_splits_kernel
from kvscope.engine.kernels.launch import (
    DeviceProfile,
    Launch,
    next_power_of_2,
    output,
    profile_of,
    require,
    require_contiguous,
    require_dtype,
)

HEAD_DIMS = (64, 80, 96, 128)
BLOCK_SIZES = (8, 16, 32, 64)
MAX_HEADS_PER_KV_HEAD = 32
"""More rows than these spill in float32; of the models that are supported none has more than 16."""
MAX_SPLITS = 64
_MIN_SPLIT_TOKENS = 128
"""A shorter part of a context costs more in its program's start and in the sum than it saves: two tiles of 128 wide
heads."""
_MOST_PROGRAMS = 4
"""Contexts are not cut into more programs for each processor: two have enough loads under way to fill its share of the
memory's rate, more only even out who has how many."""


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
            query's dtype; block_size 8, 16, 32 or 64. num_heads is a multiple of num_kv_heads, at most 32 times.
        scale: factor of the scores, usually `head_dim ** -0.5`.
        num_splits: into how many parts the context of a decode is cut at most, 1 to 64; by default as many as it takes
            to occupy the GPU. The parts are added up in float32 by a second launch.
        out: `[num_tokens, num_heads, head_dim]` to write to; by default a new tensor.

    Returns:
        `out`. Rows of decodes of length 0 are zero; tokens past `query_starts[-1]` are not written.

    Raises:
        ValueError: a shape, dtype, layout or device is not as above.
    """
    _check(query, key_cache, value_cache, batch)
    profile = profile_of(query.device)
    out = output(out, tuple(query.shape), query)
    num_tokens, num_heads, head_dim = query.shape
    _, num_kv_heads, block_size, _ = key_cache.shape
    is_decode_only = batch.max_query_len == 1
    group, padded_dim = num_heads // num_kv_heads, next_power_of_2(head_dim)
    tiling = _tiling(profile, query.dtype, padded_dim, group, is_decode_only)
    if num_splits is None:
        num_splits = _num_splits(batch.num_seqs * num_kv_heads, profile.num_processors, batch.max_seq_len)
    if not 1 <= num_splits <= MAX_SPLITS:
        raise ValueError(f"num_splits is {num_splits}; 1 to {MAX_SPLITS} are possible")
    num_tiles = batch.num_seqs
    if not is_decode_only:
        num_tiles += num_tokens // (tiling.prefill_rows // group)
    parts = (batch.num_seqs if num_splits > 1 else 0, num_heads, num_splits)
    partial = query.new_empty((*parts, head_dim), dtype=torch.float32)
    stats = query.new_empty((*parts, 2), dtype=torch.float32)
    shared = {
        "NUM_HEADS": num_heads,
        "HEAD_DIM": head_dim,
        "PADDED_DIM": padded_dim,
        "MIN_SPLIT": _MIN_SPLIT_TOKENS,
        "IS_DECODE_ONLY": is_decode_only,
        "TILE": tiling.tile,
    }
    Launch(
        kernel=attention_kernel,
        grid=(num_tiles, num_kv_heads, num_splits),
        arguments={
            "query_ptr": query,
            "key_ptr": key_cache,
            "value_ptr": value_cache,
            "out_ptr": out,
            "partial_ptr": partial,
            "stats_ptr": stats,
            "query_starts_ptr": batch.query_starts,
            "seq_lens_ptr": batch.seq_lens,
            "block_tables_ptr": batch.block_tables,
            "num_seqs": batch.num_seqs,
            "table_stride": batch.block_tables.stride(0),
            "scale": scale * math.log2(math.e),
        },
        constants={
            **shared,
            "NUM_KV_HEADS": num_kv_heads,
            "BLOCK_SIZE": block_size,
            "DECODE_ROWS": _decode_rows(group),
            "PREFILL_ROWS": tiling.prefill_rows,
        },
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    ).run()
    if num_splits > 1:
        Launch(
            kernel=sum_splits_kernel,
            grid=(batch.num_seqs, num_heads, 1),
            arguments={
                "partial_ptr": partial,
                "stats_ptr": stats,
                "out_ptr": out,
                "query_starts_ptr": batch.query_starts,
                "seq_lens_ptr": batch.seq_lens,
                "num_splits": num_splits,
            },
            constants={**shared, "PADDED_SPLITS": next_power_of_2(num_splits)},
            num_warps=4,
            num_stages=1,
        ).run()
    return out


@dataclass(frozen=True, slots=True)
class _Tiling:
    """How much a program takes at once: query rows of a prefill, keys, and the warps and stages that it takes."""

    prefill_rows: int
    tile: int
    num_warps: int
    num_stages: int = 3
    """3: one tile is computed with, one is on its way."""


def _tiling(profile: DeviceProfile, dtype: torch.dtype, padded_dim: int, group: int, is_decode_only: bool) -> _Tiling:
    """A few fixed choices instead of a search, so that the same step gives the same numbers on every run.

    All are free of register spills on 8.0, 9.0 and 10.0, and but for the largest take less than the 99 KiB of shared
    memory that smaller GPUs have (see the tests).
    """
    if dtype == torch.float32:
        rows = _decode_rows(group)
        # Products of three parts hold the query twice in registers: more than 16 rows of four warps spill.
        # For three stages Triton 3.8 takes more shared memory than smaller GPUs have.
        num_stages = 3 if profile.shared_bytes >= 128 << 10 else 2
        return _Tiling(prefill_rows=rows, tile=32, num_warps=4 if rows == 16 else 8, num_stages=num_stages)
    # 32 KiB of keys and values, and of these two: a decode takes 70 KiB, so that three share a processor of Hopper's.
    tile = 8192 // padded_dim
    if is_decode_only:
        return _Tiling(prefill_rows=64, tile=tile, num_warps=4)
    # From Hopper on, data centre chips multiply out of shared memory and have 227 KiB: two groups of four warps with 64
    # rows each, and two tiles on their way, since a processor has no second program that would load meanwhile. Others
    # hold the query in registers, and may have no more than 99 KiB: half as many rows.
    if profile.capability >= 90 and profile.shared_bytes >= 200 << 10:
        return _Tiling(prefill_rows=128, tile=tile, num_warps=8, num_stages=4)
    return _Tiling(prefill_rows=64, tile=tile, num_warps=8)


def _decode_rows(group: int) -> int:
    """Returns the rows of a decode's products: its query heads; a matrix product takes 16 at least."""
    return max(16, next_power_of_2(group))


def decode_sizes(device: torch.device, num_kv_heads: int, max_num_seqs: int, max_seq_len: int) -> list[int]:
    """Returns numbers of decodes, up to `max_num_seqs`: one for each set of kernels that steps of decodes alone need.

    The sum of the parts is compiled for the power of two above their number.
    """
    num_processors = profile_of(device).num_processors
    sizes: dict[int, int] = {}
    for num_seqs in range(1, max_num_seqs + 1):
        num_splits = _num_splits(num_seqs * num_kv_heads, num_processors, max_seq_len)
        sizes.setdefault(next_power_of_2(num_splits), num_seqs)
    return list(sizes.values())


@functools.cache
def _num_splits(num_programs: int, num_processors: int, max_seq_len: int) -> int:
    """Returns in how many parts contexts are cut: so that processors have equally many programs, about two each.

    num_programs: without splits. Where they are many already, contexts stay whole.
    """
    most = min(max_seq_len // _MIN_SPLIT_TOKENS, MAX_SPLITS, _MOST_PROGRAMS * num_processors // max(num_programs, 1))

    def preference(num_splits: int) -> tuple[float, float]:
        programs = num_programs * num_splits / num_processors
        return round(programs / max(math.ceil(programs), 1), 2), -abs(programs - 2)

    return max(range(1, max(most, 1) + 1), key=preference)


def _check(query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, batch: AttentionBatch) -> None:
    require_dtype("query", query)
    require_contiguous("query", query)
    if query.ndim != 3 or key_cache.ndim != 4:
        raise ValueError(
            f"query has {query.ndim} dimensions and key_cache {key_cache.ndim}; "
            "[num_tokens, num_heads, head_dim] and [num_blocks, num_kv_heads, block_size, head_dim] are needed"
        )
    num_tokens, num_heads, head_dim = query.shape
    num_blocks, num_kv_heads, block_size, _ = key_cache.shape
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim is {head_dim}; one of {HEAD_DIMS} is needed")
    if block_size not in BLOCK_SIZES:
        raise ValueError(f"block_size is {block_size}; one of {BLOCK_SIZES} is needed")
    if num_heads % num_kv_heads or num_heads > MAX_HEADS_PER_KV_HEAD * num_kv_heads:
        raise ValueError(
            f"num_heads is {num_heads}; a multiple of the {num_kv_heads} key/value heads is needed, "
            f"at most {MAX_HEADS_PER_KV_HEAD} times as many"
        )
    cache_shape = (num_blocks, num_kv_heads, block_size, head_dim)
    require("key_cache", key_cache, cache_shape, query.dtype, query.device)
    require("value_cache", value_cache, cache_shape, query.dtype, query.device)
    num_seqs = batch.num_seqs
    require("seq_lens", batch.seq_lens, (num_seqs,), torch.int32, query.device)
    require("query_starts", batch.query_starts, (num_seqs + 1,), torch.int32, query.device)
    tables = batch.block_tables
    if tables.ndim != 2 or tables.shape[0] != num_seqs or tables.dtype != torch.int32 or tables.stride(1) != 1:
        raise ValueError(
            f"block_tables is {tables.dtype} {list(tables.shape)}, strides {list(tables.stride())}; "
            f"int32 [{num_seqs}, max_num_blocks] with contiguous rows is needed"
        )
    if batch.max_query_len == 1 and num_tokens != num_seqs:
        raise ValueError(f"{num_tokens} tokens of {num_seqs} sequences; where each has one, as many are needed")
