"""Attention over a paged KV cache: where keys and values live, and how a ragged batch reads them.

A step's tokens come as one concatenation: first the decodes (one token each), sorted by length and cut into groups of
similar length, then the prefill chunks one after another. All tokens' keys and values of a layer are written before any
is read, so that a request may read blocks that another one computes in the same step.

`paged_attention` is the torch way, for CPUs, and the oracle of kernels to come: a kernel needs the same three things,
the queries, one layer of the `PagedKVCache`, and the step's `AttentionMetadata`. Knows nothing of requests or weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from kvscope.engine.model.cpu.huge_pages import use_huge_pages

_MAX_PADDED_FRACTION = 0.25
"""A group of decodes may be padded by this part of its blocks: beyond it a second group is cheaper than the reading."""
_MIN_ROWS_FOR_BMM = 12
"""From so many (request, key/value head) pairs on, two batched products beat the fused kernel on a CPU (measured)."""


class PagedKVCache:
    """Keys and values: `[num_layers, num_blocks, num_kv_heads, block_size, head_dim]` each, zeros at first.

    Block 0 is the null block: never written, and read only to pad, behind a mask.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        num_kv_heads: int,
        block_size: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (num_layers, num_blocks, num_kv_heads, block_size, head_dim)
        self.key = torch.zeros(shape, dtype=dtype, device=device)
        self.value = torch.zeros(shape, dtype=dtype, device=device)
        for cached in (self.key, self.value):
            use_huge_pages(cached)
        self.num_blocks = num_blocks
        self.num_kv_heads = num_kv_heads
        self.block_size = block_size
        self.head_dim = head_dim
        # The same memory as rows: of one token and head (to write), of one block and head (to read).
        self._token_rows = [
            (key.view(-1, head_dim), value.view(-1, head_dim)) for key, value in zip(self.key, self.value, strict=True)
        ]
        self._block_rows = [
            (key.view(-1, block_size * head_dim), value.view(-1, block_size * head_dim))
            for key, value in zip(self.key, self.value, strict=True)
        ]
        self._key_buffer = torch.empty(0, dtype=dtype, device=device)
        self._value_buffer = torch.empty(0, dtype=dtype, device=device)

    def write(self, layer: int, token_rows: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Stores one layer's keys and values, `[num_tokens, num_kv_heads, head_dim]`, at the tokens' slots.

        token_rows: `AttentionMetadata.token_rows`.
        """
        keys, values = self._token_rows[layer]
        keys.index_copy_(0, token_rows, key.reshape(-1, self.head_dim))
        values.index_copy_(0, token_rows, value.reshape(-1, self.head_dim))

    def gather(self, layer: int, block_rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies blocks together: keys and values, `[num_requests, num_kv_heads, num_blocks * block_size, head_dim]`.

        block_rows: `[num_requests, num_kv_heads, num_blocks]`. The result is overwritten by the next call: a fresh
        tensor a layer would cost more in page faults than the copy itself.
        """
        num_requests, _, num_blocks = block_rows.shape
        num_rows, row = block_rows.numel(), self.block_size * self.head_dim
        if self._key_buffer.numel() < num_rows * row:
            self._key_buffer = self._key_buffer.new_empty(num_rows * row)
            self._value_buffer = self._value_buffer.new_empty(num_rows * row)
        keys, values = self._block_rows[layer]
        rows = block_rows.view(-1)
        shape = (num_requests, self.num_kv_heads, num_blocks * self.block_size, self.head_dim)
        key = torch.index_select(keys, 0, rows, out=self._key_buffer[: num_rows * row].view(num_rows, row))
        value = torch.index_select(values, 0, rows, out=self._value_buffer[: num_rows * row].view(num_rows, row))
        return key.view(shape), value.view(shape)


@dataclass(slots=True)
class DecodeGroup:
    """Decodes of similar length: the step's tokens `[start, start + num_requests)`, padded to the longest table."""

    start: int
    block_rows: torch.Tensor
    """`[num_requests, num_kv_heads, num_blocks]`."""
    mask: torch.Tensor
    """`[num_requests, 1, 1, num_blocks * block_size]`, 0 where a request's tokens are, -inf behind them."""
    mask_of_heads: torch.Tensor
    """The same for each key/value head, `[num_requests * num_kv_heads, 1, num_blocks * block_size]`."""


@dataclass(slots=True)
class PrefillChunk:
    """Tokens `[start, start + num_tokens)` of the step, of one request that had `num_computed_tokens` before."""

    start: int
    num_tokens: int
    num_computed_tokens: int
    block_rows: torch.Tensor
    """`[1, num_kv_heads, num_blocks]`."""
    mask: torch.Tensor | None
    """`[num_tokens, num_computed_tokens + num_tokens]`, -inf ahead of each token; None where plain causal does."""


@dataclass(slots=True)
class AttentionMetadata:
    """Where a step's tokens are written, and what each of them may see. The same for all layers."""

    num_tokens: int
    token_rows: torch.Tensor
    """`[num_tokens * num_kv_heads]`: the row of each token and head in a layer's cache."""
    decodes: list[DecodeGroup]
    prefills: list[PrefillChunk]


@dataclass(frozen=True, slots=True)
class Span:
    """One request's part of a step: tokens at positions `[num_computed_tokens, num_computed_tokens + num_tokens)`."""

    num_computed_tokens: int
    num_tokens: int
    block_ids: Sequence[int]

    @property
    def seq_len(self) -> int:
        return self.num_computed_tokens + self.num_tokens


def order_spans(spans: Sequence[Span]) -> list[int]:
    """Returns the order of a step's tokens: decodes by length, then prefill chunks as they came."""
    decodes = [i for i, span in enumerate(spans) if span.num_tokens == 1]
    decodes.sort(key=lambda i: spans[i].seq_len)
    return decodes + [i for i, span in enumerate(spans) if span.num_tokens != 1]


def build_metadata(spans: Sequence[Span], cache: PagedKVCache) -> AttentionMetadata:
    """Returns the step's metadata; `spans` are in the order of `order_spans`."""
    device, dtype = cache.key.device, cache.key.dtype
    block_size = cache.block_size
    tables = [np.asarray(span.block_ids[: -(-span.seq_len // block_size)], dtype=np.int64) for span in spans]
    rows = [_token_rows(span, table, cache) for span, table in zip(spans, tables, strict=True)]
    num_decodes = sum(span.num_tokens == 1 for span in spans)
    decodes: list[DecodeGroup] = []
    for start, stop in _similar_lengths([len(table) for table in tables[:num_decodes]]):
        seq_lens = np.asarray([span.seq_len for span in spans[start:stop]], dtype=np.int64)
        decodes.append(_decode_group(start, seq_lens, tables[start:stop], cache))
    prefills: list[PrefillChunk] = []
    start = num_decodes
    for span, table in zip(spans[num_decodes:], tables[num_decodes:], strict=True):
        mask = _causal_mask(span, dtype, device) if span.num_computed_tokens else None
        block_rows = torch.from_numpy(_head_rows(table[None], cache.num_kv_heads)).to(device)
        prefills.append(PrefillChunk(start, span.num_tokens, span.num_computed_tokens, block_rows, mask))
        start += span.num_tokens
    return AttentionMetadata(start, torch.from_numpy(np.concatenate(rows)).to(device), decodes, prefills)


def paged_attention(
    query: torch.Tensor, layer: int, cache: PagedKVCache, metadata: AttentionMetadata, scale: float
) -> torch.Tensor:
    """Returns attention of all the step's tokens over their requests' keys and values, written before.

    query: `[num_tokens, num_heads, head_dim]`; returns `[num_tokens, num_heads * head_dim]`. Scores are times `scale`.
    """
    num_tokens, num_heads, head_dim = query.shape
    if not metadata.prefills and len(metadata.decodes) == 1:
        return _attend_decodes(query, layer, cache, metadata.decodes[0], scale)
    out = query.new_empty(num_tokens, num_heads * head_dim)
    for group in metadata.decodes:
        stop = group.start + len(group.block_rows)
        out[group.start : stop] = _attend_decodes(query[group.start : stop], layer, cache, group, scale)
    for chunk in metadata.prefills:
        stop = chunk.start + chunk.num_tokens
        out[chunk.start : stop] = _attend_prefill(query[chunk.start : stop], layer, cache, chunk, scale)
    return out


def _attend_decodes(
    query: torch.Tensor, layer: int, cache: PagedKVCache, group: DecodeGroup, scale: float
) -> torch.Tensor:
    """One query token a request: the query heads that share a key/value head become rows of one product."""
    num_requests, num_heads, head_dim = query.shape
    num_kv_heads = cache.num_kv_heads
    key, value = cache.gather(layer, group.block_rows)
    query = query.reshape(num_requests, num_kv_heads, num_heads // num_kv_heads, head_dim)
    if num_requests * num_kv_heads < _MIN_ROWS_FOR_BMM:
        out = scaled_dot_product_attention(query, key, value, attn_mask=group.mask, scale=scale)
    else:
        queries = query.reshape(num_requests * num_kv_heads, -1, head_dim)
        keys = key.view(num_requests * num_kv_heads, -1, head_dim)
        scores = torch.baddbmm(group.mask_of_heads, queries, keys.transpose(1, 2), alpha=scale)
        out = torch.bmm(torch.softmax(scores, -1), value.view(num_requests * num_kv_heads, -1, head_dim))
    return out.reshape(num_requests, num_heads * head_dim)


def _attend_prefill(
    query: torch.Tensor, layer: int, cache: PagedKVCache, chunk: PrefillChunk, scale: float
) -> torch.Tensor:
    num_tokens, num_heads, head_dim = query.shape
    seq_len = chunk.num_computed_tokens + num_tokens
    key, value = cache.gather(layer, chunk.block_rows)
    out = scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        key[:, :, :seq_len],
        value[:, :, :seq_len],
        attn_mask=chunk.mask,
        is_causal=chunk.mask is None,
        scale=scale,
        enable_gqa=num_heads != cache.num_kv_heads,
    )
    return out.squeeze(0).transpose(0, 1).reshape(num_tokens, num_heads * head_dim)


def _token_rows(span: Span, table: NDArray[np.int64], cache: PagedKVCache) -> NDArray[np.int64]:
    positions = np.arange(span.num_computed_tokens, span.seq_len, dtype=np.int64)
    blocks, offsets = table[positions // cache.block_size], positions % cache.block_size
    heads = np.arange(cache.num_kv_heads, dtype=np.int64)
    rows = (blocks[:, None] * cache.num_kv_heads + heads) * cache.block_size + offsets[:, None]
    return np.ascontiguousarray(rows.reshape(-1))


def _head_rows(tables: NDArray[np.int64], num_kv_heads: int) -> NDArray[np.int64]:
    """Block ids `[num_requests, num_blocks]` -> block rows `[num_requests, num_kv_heads, num_blocks]`."""
    heads = np.arange(num_kv_heads, dtype=np.int64)
    return np.ascontiguousarray(tables[:, None, :] * num_kv_heads + heads[None, :, None])


def _similar_lengths(num_blocks: Sequence[int]) -> list[tuple[int, int]]:
    """Cuts ascending lengths into runs `[start, stop)` of which little is padding."""
    runs: list[tuple[int, int]] = []
    start, total = 0, 0
    for stop, longest in enumerate(num_blocks, 1):
        total += longest
        padded = (stop - start) * longest
        if padded - total > _MAX_PADDED_FRACTION * padded:
            runs.append((start, stop - 1))
            start, total = stop - 1, longest
    if num_blocks:
        runs.append((start, len(num_blocks)))
    return runs


def _decode_group(
    start: int, seq_lens: NDArray[np.int64], tables: Sequence[NDArray[np.int64]], cache: PagedKVCache
) -> DecodeGroup:
    device, dtype, num_kv_heads = cache.key.device, cache.key.dtype, cache.num_kv_heads
    num_blocks = max(len(table) for table in tables)
    padded = np.zeros((len(tables), num_blocks), dtype=np.int64)
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    positions = torch.arange(num_blocks * cache.block_size, device=device)
    is_behind = positions >= torch.from_numpy(seq_lens).to(device)[:, None]
    mask = torch.zeros(is_behind.shape, dtype=dtype, device=device).masked_fill_(is_behind, float("-inf"))
    return DecodeGroup(
        start=start,
        block_rows=torch.from_numpy(_head_rows(padded, num_kv_heads)).to(device),
        mask=mask[:, None, None],
        mask_of_heads=mask.repeat_interleave(num_kv_heads, 0).unsqueeze(1),
    )


def _causal_mask(span: Span, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Token i of the chunk sees what was computed before and the chunk's tokens up to itself."""
    mask = torch.full((span.num_tokens, span.seq_len), float("-inf"), dtype=dtype, device=device)
    return mask.triu_(span.num_computed_tokens + 1)
