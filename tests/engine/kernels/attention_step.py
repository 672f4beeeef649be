"""A step for the attention kernel, of random contents, in which every place that must not be read holds NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvscope.engine.kernels.attention import AttentionBatch


@dataclass(frozen=True, slots=True)
class AttentionStep:
    """What the kernel is given, and what it should return."""

    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    batch: AttentionBatch
    scale: float
    expected: torch.Tensor
    """float64; NaN where nothing is to be written."""


def attention_step(
    dtype: torch.dtype,
    heads: tuple[int, int],
    head_dim: int,
    block_size: int,
    sequences: Sequence[tuple[int, int]],
    *,
    num_padding_tokens: int = 0,
) -> AttentionStep:
    """Makes a step. sequences: (length with the new tokens, new tokens); (0, 0) pads, or (0, 1) among decodes.

    Blocks are dealt at random; block 0, blocks of nobody, places behind a sequence's end, table entries behind it (they
    name such a block), and padding tokens' queries are NaN.
    """
    num_heads, num_kv_heads = heads
    generator = torch.Generator().manual_seed(hash((heads, head_dim, block_size, *sequences)) & 0xFFFF)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    num_blocks = [-(-seq_len // block_size) for seq_len, _ in sequences]
    num_all = sum(num_blocks) + 3
    dealt = (torch.randperm(num_all - 2, generator=generator) + 1).tolist()
    tables = torch.full((len(sequences), max(num_blocks) + 2), num_all - 1, dtype=torch.int32)
    key_cache = torch.full((num_all, num_kv_heads, block_size, head_dim), float("nan"), dtype=dtype)
    value_cache = key_cache.clone()
    starts, queries, expected = [0], [], []
    scale = head_dim**-0.5
    for row, (seq_len, query_len), count in zip(tables, sequences, num_blocks, strict=True):
        row[:count] = torch.tensor([dealt.pop() for _ in range(count)])
        key, value = random(seq_len, num_kv_heads, head_dim), random(seq_len, num_kv_heads, head_dim)
        for position in range(seq_len):
            block, place = int(row[position // block_size]), position % block_size
            key_cache[block, :, place], value_cache[block, :, place] = key[position], value[position]
        query = random(query_len, num_heads, head_dim)
        if seq_len == 0:
            query[:] = float("nan")
        queries.append(query)
        expected.append(_attention(query, key, value, scale))
        starts.append(starts[-1] + query_len)
    nothing = torch.full((num_padding_tokens, num_heads, head_dim), float("nan"))
    batch = AttentionBatch(
        query_starts=torch.tensor(starts, dtype=torch.int32),
        seq_lens=torch.tensor([seq_len for seq_len, _ in sequences], dtype=torch.int32),
        block_tables=tables,
        slot_mapping=torch.zeros(starts[-1] + num_padding_tokens, dtype=torch.int64),
        max_query_len=max(query_len for _, query_len in sequences),
        max_seq_len=max(seq_len for seq_len, _ in sequences),
    )
    return AttentionStep(
        query=torch.cat([*queries, nothing.to(dtype)]),
        key_cache=key_cache,
        value_cache=value_cache,
        batch=batch,
        scale=scale,
        expected=torch.cat([*expected, nothing.double()]),
    )


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """The definition, token by token in float64; zeros where there is nothing to attend to."""
    num_new, num_heads, _ = query.shape
    seq_len, num_kv_heads, _ = key.shape
    out = torch.zeros(query.shape, dtype=torch.float64)
    if seq_len:
        key, value = key.double(), value.double()
        for token in range(num_new):
            num_seen = seq_len - num_new + token + 1
            for head in range(num_heads):
                of_group = head * num_kv_heads // num_heads
                weights = (key[:num_seen, of_group] @ query[token, head].double() * scale).softmax(0)
                out[token, head] = weights @ value[:num_seen, of_group]
    return out
