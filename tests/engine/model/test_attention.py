"""Paged attention against the plain definition, token by token, on ragged batches."""

from __future__ import annotations

import math

import pytest
import torch

from kvscope.engine.model.attention import PagedKVCache, Span, build_metadata, order_spans, paged_attention

HEAD_DIM = 8


def reference(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, position: int, scale: float
) -> torch.Tensor:
    """One token's attention by the definition. query: `[num_heads, head_dim]`; keys: `[seq_len, num_kv_heads, …]`."""
    num_heads, num_kv_heads = len(query), keys.shape[1]
    out = []
    for head in range(num_heads):
        kv_head = head * num_kv_heads // num_heads
        scores = [float(query[head] @ keys[p, kv_head]) * scale for p in range(position + 1)]
        weights = [math.exp(score - max(scores)) for score in scores]
        mixed = sum((w * values[p, kv_head] for p, w in enumerate(weights)), torch.zeros(HEAD_DIM, dtype=torch.float64))
        out.append(mixed / sum(weights))
    return torch.cat(out)


@pytest.mark.parametrize("num_heads", [2, 6], ids=["equal heads", "grouped heads"])
@pytest.mark.parametrize(
    "lengths",
    [
        [(0, 7)],
        [(0, 1)],
        [(5, 1), (0, 9), (30, 1), (6, 4), (3, 1)],
        [(17, 1), (16, 1), (15, 1), (1, 1), (2, 1), (40, 1), (33, 1)],
        [(31, 2), (4, 1)],
    ],
    ids=["a prompt", "one token", "a mixed batch", "decodes of many lengths", "a draft"],
)
def test_every_token_sees_what_it_should(lengths: list[tuple[int, int]], num_heads: int) -> None:
    """lengths: tokens computed before, and tokens of this step, of each request."""
    generator = torch.Generator().manual_seed(3)
    num_kv_heads, block_size = 2, 4
    cache = PagedKVCache(
        num_layers=2,
        num_blocks=80,
        num_kv_heads=num_kv_heads,
        block_size=block_size,
        head_dim=HEAD_DIM,
        dtype=torch.float64,
        device=torch.device("cpu"),
    )
    shuffled = (torch.randperm(79, generator=generator) + 1).tolist()
    spans, texts = [], []
    for computed, new in lengths:
        num_blocks = -(-(computed + new) // block_size)
        spans.append(Span(computed, new, [shuffled.pop() for _ in range(num_blocks)]))
        shape = (computed + new, num_kv_heads, HEAD_DIM)
        texts.append([torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)])
    # What was computed before comes in by a pass of its own.
    before = [
        (Span(0, span.num_computed_tokens, span.block_ids), text) for span, text in zip(spans, texts, strict=True)
    ]
    before = [(span, text) for span, text in before if span.num_tokens]
    for span, (keys, values) in before:
        metadata = build_metadata([span], cache)
        cache.write(1, metadata.token_rows, keys[: span.num_tokens], values[: span.num_tokens])

    order = order_spans(spans)
    ordered, texts = [spans[i] for i in order], [texts[i] for i in order]
    metadata = build_metadata(ordered, cache)
    new_keys = torch.cat([keys[span.num_computed_tokens :] for span, (keys, _) in zip(ordered, texts, strict=True)])
    new_values = torch.cat(
        [values[span.num_computed_tokens :] for span, (_, values) in zip(ordered, texts, strict=True)]
    )
    query = torch.randn(len(new_keys), num_heads, HEAD_DIM, generator=generator, dtype=torch.float64)
    cache.write(1, metadata.token_rows, new_keys, new_values)
    got = paged_attention(query, 1, cache, metadata, 0.3)

    expected, row = [], 0
    for span, (keys, values) in zip(ordered, texts, strict=True):
        for position in range(span.num_computed_tokens, span.seq_len):
            expected.append(reference(query[row], keys, values, position, 0.3))
            row += 1
    torch.testing.assert_close(got, torch.stack(expected), atol=1e-9, rtol=0)
    assert not cache.key[0].any(), "the other layer was touched"
    assert not cache.key[1, 0].any(), "the null block was written"


def test_decodes_of_like_length_share_a_group_and_others_do_not() -> None:
    cache = PagedKVCache(
        num_layers=1,
        num_blocks=300,
        num_kv_heads=1,
        block_size=4,
        head_dim=HEAD_DIM,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    seq_lens = [8, 8, 12, 400, 404]
    metadata = build_metadata([Span(n - 1, 1, list(range(1, 1 + -(-n // 4)))) for n in seq_lens], cache)
    assert [(group.start, tuple(group.block_rows.shape)) for group in metadata.decodes] == [
        (0, (3, 1, 3)),
        (3, (2, 1, 101)),
    ]
