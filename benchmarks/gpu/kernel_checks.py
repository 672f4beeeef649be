"""Every kernel against its oracle, which computes from the same numbers in a wider dtype; outputs poisoned first.

A kernel may be off by a few roundings of its own dtype, relative to the largest value there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.gpu.rows import Rows
from benchmarks.gpu.setup import BLOCK_SIZE, Setup
from benchmarks.gpu.torch_kernels import TorchKernels
from kvscope.engine.kernels.activation import silu_and_mul
from kvscope.engine.kernels.attention import AttentionBatch, paged_attention
from kvscope.engine.kernels.norm import rms_norm
from kvscope.engine.kernels.rotary import rotate_and_cache
from kvscope.engine.kernels.sampling import SamplingRows, sample

ORACLE = TorchKernels()
MAX_ROUNDINGS = {torch.bfloat16: 6, torch.float16: 6, torch.float32: 40}
"""Of the output's dtype. An accumulation in float32 is exact beside the narrow ones, but softmax weights are rounded
before they are multiplied; float32's products are made of three on a GPU, and lose some last bits."""


def check_kernels(setup: Setup, rows: Rows) -> None:
    """Runs each kernel in each dtype; one that fails costs the others nothing."""
    for dtype in setup.dtypes:
        for name, check in (
            ("rms_norm", _check_norm),
            ("silu_and_mul", _check_activation),
            ("rotate_and_cache", _check_rotary),
            ("sample, greedy", _check_greedy),
        ):
            with rows.attempt(f"{name}, {_name(dtype)}"):
                check(setup, rows, dtype)
        for name, batch in attention_cases(setup).items():
            with rows.attempt(f"paged_attention, {name}, {_name(dtype)}"):
                _check_attention(setup, rows, dtype, name, batch)
    with rows.attempt("sample, draws"):
        _check_draws(setup, rows)


@dataclass(frozen=True, slots=True)
class Spans:
    """A batch by lengths: of each sequence, its new tokens and all of them; 0 for padding."""

    query_lens: Sequence[int]
    seq_lens: Sequence[int]


def attention_cases(setup: Setup) -> dict[str, Spans]:
    """Returns decodes with padding among them, chunks, both together, and a long context that is cut in parts."""
    long = setup.pick(9001, 40)
    return {
        "decodes": Spans([1] * 6, [1, BLOCK_SIZE, BLOCK_SIZE + 1, 0, setup.pick(700, 20), setup.pick(513, 18)]),
        "one long decode": Spans([1], [long]),
        "chunks": Spans(
            [BLOCK_SIZE, setup.pick(300, 3), setup.pick(130, 5)], [BLOCK_SIZE, setup.pick(300, 3), setup.pick(777, 21)]
        ),
        "chunks and decodes": Spans(
            [1, setup.pick(200, 7), 1, 2], [setup.pick(1000, 19), setup.pick(455, 23), 1, setup.pick(258, 18)]
        ),
    }


def attention_batch(spans: Spans, device: torch.device, num_blocks: int, generator: torch.Generator) -> AttentionBatch:
    """Returns the batch with blocks in random order, none of them the null block; table ends hold a far-off number."""
    counts = [-(-seq_len // BLOCK_SIZE) for seq_len in spans.seq_lens]
    assert sum(counts) < num_blocks
    order = (torch.randperm(num_blocks - 1, generator=generator, device=device) + 1).to(torch.int32)
    tables = torch.full((len(counts), max(counts)), 1 << 30, dtype=torch.int32, device=device)
    slots: list[torch.Tensor] = []
    begin = 0
    for row, (count, query_len, seq_len) in enumerate(zip(counts, spans.query_lens, spans.seq_lens, strict=True)):
        tables[row, :count] = order[begin : begin + count]
        begin += count
        positions = torch.arange(seq_len - query_len, seq_len, device=device)
        in_table = tables[row].long()[positions.clamp(min=0) // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
        slots.append(in_table if seq_len else torch.full((query_len,), -1, device=device))
    starts = torch.tensor([0, *torch.tensor(spans.query_lens).cumsum(0).tolist()], dtype=torch.int32, device=device)
    return AttentionBatch(
        query_starts=starts,
        seq_lens=torch.tensor(spans.seq_lens, dtype=torch.int32, device=device),
        block_tables=tables,
        slot_mapping=torch.cat(slots),
        max_query_len=max(spans.query_lens),
        max_seq_len=max(spans.seq_lens),
    )


def _check_norm(setup: Setup, rows: Rows, dtype: torch.dtype) -> None:
    hidden_size = setup.config.hidden_size
    x, residual = (_random(setup, dtype, setup.pick(257, 3), hidden_size, seed=i) for i in (1, 2))
    weight = _random(setup, dtype, hidden_size, seed=3)
    expected_residual = residual.clone()
    expected = ORACLE.rms_norm(x.clone(), weight, 1e-6, residual=expected_residual)
    found = rms_norm(x, weight, 1e-6, residual=residual, out=_poisoned(x))
    _compare(rows, "rms_norm", dtype, found, expected)
    rows.check_equal(f"rms_norm {_name(dtype)}: residual's differences", _num_different(residual, expected_residual), 0)


def _check_activation(setup: Setup, rows: Rows, dtype: torch.dtype) -> None:
    gate_up = _random(setup, dtype, setup.pick(257, 3), 2 * setup.config.intermediate_size, seed=4)
    expected = ORACLE.silu_and_mul(_wide(gate_up))
    out = _poisoned(gate_up[:, : setup.config.intermediate_size].contiguous())
    _compare(rows, "silu_and_mul", dtype, silu_and_mul(gate_up, out=out), expected)


def _check_rotary(setup: Setup, rows: Rows, dtype: torch.dtype) -> None:
    config = setup.config
    num_tokens, num_kv_heads, head_dim = setup.pick(100, 3), config.num_key_value_heads, config.head_dim
    num_heads = config.num_attention_heads
    qkv = _random(setup, dtype, num_tokens, (num_heads + 2 * num_kv_heads) * head_dim, seed=5)
    angles = _random(setup, torch.float32, 512, head_dim // 2, seed=6)
    norm = _random(setup, dtype, num_heads + num_kv_heads, head_dim, seed=7)
    generator = setup.generator(8)
    positions = torch.randint(0, 512, (num_tokens,), generator=generator, device=setup.device)
    slots = torch.randperm(8 * BLOCK_SIZE, generator=generator, device=setup.device)[:num_tokens] + BLOCK_SIZE
    slots[1] = -1
    caches = _random(setup, dtype, 2, 9, num_kv_heads, BLOCK_SIZE, head_dim, seed=9)
    wide = _wide(caches)
    found = rotate_and_cache(
        *(qkv, positions, angles.cos(), angles.sin(), caches[0], caches[1], slots),
        num_heads=num_heads,
        qk_norm=norm,
        out=_poisoned(qkv[:, : num_heads * head_dim].view(num_tokens, num_heads, head_dim)),
    )
    expected = ORACLE.rotate_and_cache(
        *(_wide(qkv), positions, angles.cos(), angles.sin(), wide[0], wide[1], slots),
        num_heads=num_heads,
        qk_norm=_wide(norm),
    )
    _compare(rows, "rotate_and_cache: query", dtype, found, expected)
    _compare(rows, "rotate_and_cache: key cache", dtype, caches[0], wide[0])
    rows.check_equal(f"rotate_and_cache {_name(dtype)}: value cache", _num_different(caches[1], wide[1].to(dtype)), 0)


def _check_attention(setup: Setup, rows: Rows, dtype: torch.dtype, name: str, spans: Spans) -> None:
    config = setup.config
    num_blocks = 8 + sum(-(-seq_len // BLOCK_SIZE) for seq_len in spans.seq_lens)
    query = _random(setup, dtype, sum(spans.query_lens), config.num_attention_heads, config.head_dim, seed=10).mul_(2)
    caches = _random(setup, dtype, 2, num_blocks, config.num_key_value_heads, BLOCK_SIZE, config.head_dim, seed=11)
    caches[:, 0] = torch.nan  # the null block must not be read into anything
    batch = attention_batch(spans, setup.device, num_blocks, setup.generator(12))
    scale = config.head_dim**-0.5
    found = paged_attention(query, caches[0], caches[1], batch, scale=scale, out=_poisoned(query))
    wide = (_wide(query), _wide(caches[0]), _wide(caches[1]))
    expected = ORACLE.paged_attention(*wide, batch, scale=scale)
    _compare(rows, f"paged_attention, {name}", dtype, found, expected)


def _check_greedy(setup: Setup, rows: Rows, dtype: torch.dtype) -> None:
    """Ties are broken by the first token, as argmax of distinct values would: every row has one."""
    logits = _random(setup, dtype, setup.pick(64, 3), setup.config.vocab_size, seed=13)
    first = torch.arange(len(logits), device=setup.device) * 5 + 1
    for offset in (0, 3):
        logits[torch.arange(len(logits), device=setup.device), first + offset] = 50.0
    rows.check_equal(f"sample {_name(dtype)}: greedy rows that differ", _num_different(sample(logits, None), first), 0)


def _check_draws(setup: Setup, rows: Rows) -> None:
    """Many draws from one row: of the four likeliest tokens only, each as often as it should come (5 deviations)."""
    num_rows, vocab_size = setup.pick(8192, 6), setup.config.vocab_size
    row = torch.full((vocab_size,), -5.0, device=setup.device)
    token_ids = [7, vocab_size - 1, 100, vocab_size // 2]
    row[token_ids] = torch.tensor([2.0, 1.0, 0.5, 0.0], device=setup.device)
    settings = SamplingRows(
        temperatures=torch.full((num_rows,), 0.7, device=setup.device),
        top_ks=torch.full((num_rows,), 4, dtype=torch.int32, device=setup.device),
        top_ps=torch.ones(num_rows, device=setup.device),
        min_ps=torch.zeros(num_rows, device=setup.device),
        seeds=torch.arange(num_rows, device=setup.device),
        indices=torch.zeros(num_rows, dtype=torch.int64, device=setup.device),
    )
    logits = row.expand(num_rows, vocab_size).contiguous()
    drawn = sample(logits, settings)
    rows.check_equal(
        "sample: rows that a second call draws differently", _num_different(sample(logits, settings), drawn), 0
    )
    probabilities = (row[token_ids] / 0.7).softmax(0).tolist()
    counts = [int((drawn == token_id).sum()) for token_id in token_ids]
    rows.check_equal("sample: draws from outside of top_k", num_rows - sum(counts), 0)
    for token_id, count, probability in zip(token_ids, counts, probabilities, strict=True):
        deviation = (num_rows * probability * (1 - probability)) ** 0.5
        rows.check(
            f"sample: draws of token {token_id}, off by", abs(count - num_rows * probability) / deviation, 5, "σ"
        )


def _random(setup: Setup, dtype: torch.dtype, *shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=setup.generator(seed), device=setup.device).to(dtype)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.dtype == torch.float32 else tensor.float()


def _poisoned(like: torch.Tensor) -> torch.Tensor:
    return torch.full_like(like, torch.nan, memory_format=torch.contiguous_format)


def _compare(rows: Rows, name: str, dtype: torch.dtype, found: torch.Tensor, expected: torch.Tensor) -> None:
    """Notes the largest difference, in roundings of the dtype; NaN must stand where NaN stands."""
    is_nan = expected.isnan()
    if not torch.equal(found.isnan(), is_nan):
        rows.check(f"{name}, {_name(dtype)}: NaN in other places", float("nan"), 0)
        return
    error = (found.double() - expected.double()).masked_fill(is_nan, 0).abs().max()
    unit = expected.double().masked_fill(is_nan, 0).abs().max() * torch.finfo(dtype).eps
    rows.check(f"{name}, {_name(dtype)}: error", float(error / unit), MAX_ROUNDINGS[dtype], "roundings")


def _num_different(found: torch.Tensor, expected: torch.Tensor) -> int:
    return int((found != expected).sum())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
