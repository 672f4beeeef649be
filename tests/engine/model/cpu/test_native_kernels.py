"""The kernels in C against the definitions, in float64, on ragged batches whose invisible parts are poisoned."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from kvscope.engine.model.cpu.native_kernels import NativeKernels, RaggedBatch, problem_of
from kvscope.engine.model.cpu.native_library import unavailable_reason
from kvscope.engine.model.rotary import apply_rotary
from kvscope.engine.model.toy import toy_config

BF16 = torch.bfloat16
POISON = 1e4
"""In what nobody may read: larger by far than what is summed, and no NaN, which some sums would hide."""


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


def assert_near(got: torch.Tensor, expected: torch.Tensor, mean: float) -> None:
    """Rounding moves each value by its last digit; a wrong element moves the mean by much more."""
    error = (got.double() - expected.double()).abs()
    assert float(error.mean()) < mean
    assert float(error.max()) < 0.03 * max(1.0, float(expected.abs().max()))


def ragged(spans: list[tuple[int, int]], block_size: int) -> RaggedBatch:
    """spans: tokens before, and of this step, of each sequence. Blocks are shuffled, block 0 belongs to nobody."""
    lens = [before + new for before, new in spans]
    counts = [-(-length // block_size) for length in lens]
    block_ids = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(4)) + 1
    starts = [0, *itertools.accumulate(counts)][:-1]
    positions = torch.cat([torch.arange(before, before + new) for before, new in spans])
    owners = torch.repeat_interleave(torch.tensor(starts), torch.tensor([new for _, new in spans]))
    blocks = block_ids[owners + positions // block_size]
    return RaggedBatch(
        positions=positions,
        slot_mapping=blocks * block_size + positions % block_size,
        query_starts=torch.tensor([0, *itertools.accumulate(new for _, new in spans)], dtype=torch.int32),
        seq_lens=torch.tensor(lens, dtype=torch.int32),
        block_ids=block_ids.to(torch.int32),
        table_starts=torch.tensor(starts),
    )


def written_slots(batch: RaggedBatch, block_size: int) -> list[torch.Tensor]:
    """Returns each sequence's slots, of all its tokens."""
    slots = []
    for start, length in zip(batch.table_starts.tolist(), batch.seq_lens.tolist(), strict=True):
        positions = torch.arange(length)
        slots.append(batch.block_ids[start + positions // block_size] * block_size + positions % block_size)
    return slots


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "block_size"),
    [(9, 3, 64, 16), (4, 4, 32, 8), (14, 2, 64, 64), (16, 2, 128, 7), (2, 1, 96, 16), (1, 1, 256, 16)],
)
@pytest.mark.parametrize(
    "spans",
    [
        [(0, 1)],
        [(15, 1), (16, 1), (63, 1), (64, 1), (130, 1), (0, 1)],
        [(0, 7), (40, 1), (61, 70), (3, 2), (0, 200)],
    ],
    ids=["one token", "decodes", "chunks, drafts and decodes"],
)
def test_attention_sees_what_it_should(
    kernels: NativeKernels,
    spans: list[tuple[int, int]],
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
) -> None:
    batch = ragged(spans, block_size)
    shape = (len(batch.block_ids) + 1, num_kv_heads, block_size, head_dim)
    key, value = (torch.full(shape, POISON, dtype=BF16) for _ in range(2))
    num_tokens = len(batch.positions)
    query = random(num_tokens, num_heads, head_dim)
    scale, expected, first = head_dim**-0.5, torch.empty(num_tokens, num_heads, head_dim, dtype=torch.float64), 0
    for index, slots in enumerate(written_slots(batch, block_size)):
        keys, values = (random(len(slots), num_kv_heads, head_dim, seed=10 * index + i) for i in (2, 3))
        key[slots // block_size, :, slots % block_size] = keys
        value[slots // block_size, :, slots % block_size] = values
        keys, values = (x.double().repeat_interleave(num_heads // num_kv_heads, 1) for x in (keys, values))
        new = spans[index][1]
        scores = torch.einsum("qhd,khd->hqk", query[first : first + new].double(), keys) * scale
        is_ahead = torch.arange(len(slots)) > batch.positions[first : first + new, None]
        weights = scores.masked_fill(is_ahead, float("-inf")).softmax(-1)
        expected[first : first + new] = torch.einsum("hqk,khd->qhd", weights, values)
        first += new
    got = kernels.paged_attention(query, key, value, batch, scale=scale)
    for start, stop in itertools.pairwise(batch.query_starts.tolist()):
        assert_near(got[start:stop], expected[start:stop], mean=2e-3)


@pytest.mark.parametrize("has_qk_norm", [False, True])
def test_queries_and_keys_are_rotated_and_written(kernels: NativeKernels, *, has_qk_norm: bool) -> None:
    num_heads, num_kv_heads, head_dim, block_size = 6, 2, 64, 8
    batch = ragged([(5, 1), (0, 20), (30, 3)], block_size)
    batch.slot_mapping[0] = -1
    num_tokens, num_qk_heads = len(batch.positions), num_heads + num_kv_heads
    qkv = random(num_tokens, (num_heads + 2 * num_kv_heads) * head_dim)
    norm = random(num_qk_heads, head_dim, seed=2) if has_qk_norm else None
    angles = torch.outer(torch.arange(40.0), torch.linspace(0.1, 1.0, head_dim // 2))
    key, value = (torch.full((len(batch.block_ids) + 1, num_kv_heads, block_size, head_dim), POISON, dtype=BF16),) * 2
    value = value.clone()
    query = kernels.rotate_and_cache(
        qkv, batch, angles.cos(), angles.sin(), key, value, num_heads=num_heads, qk_norm=norm, eps=0.3
    )

    heads = qkv.view(num_tokens, -1, head_dim).double()
    qk = heads[:, :num_qk_heads]
    if norm is not None:
        qk = torch.nn.functional.rms_norm(qk, (head_dim,), None, 0.3) * norm.double()
    chosen = angles.double()[batch.positions]
    rotated = apply_rotary(qk, torch.cat([chosen, chosen], -1).cos()[:, None], chosen.sin()[:, None])
    assert_near(query, rotated[:, :num_heads], mean=3e-3)
    slots = batch.slot_mapping[1:]
    for cached, expected in ((key, rotated[1:, num_heads:]), (value, heads[1:, num_qk_heads:])):
        by_slot = cached.transpose(1, 2).reshape(-1, num_kv_heads, head_dim)
        assert_near(by_slot[slots], expected, mean=3e-3)
        by_slot[slots] = POISON
        assert bool((by_slot == POISON).all()), "something else was written"


def test_blocks_far_into_a_large_pool(kernels: NativeKernels) -> None:
    """Behind 2**31 numbers, where 32 bits are too few; memory that nobody touches takes none."""
    batch = ragged([(70, 2)], 64)
    num_blocks = (1 << 31) // (64 * 128) + 2
    batch = dataclasses.replace(
        batch,
        block_ids=torch.tensor([num_blocks - 1, num_blocks - 2], dtype=torch.int32),
        slot_mapping=torch.tensor([6, 7]) + (num_blocks - 2) * 64,
    )
    pool = torch.empty((num_blocks, 1, 64, 128), dtype=BF16)
    pool[-2:] = random(2, 1, 64, 128)
    near = pool[-2:].clone()
    qkv, tables = random(2, 3 * 128, seed=2), torch.ones(72, 64)
    query = kernels.rotate_and_cache(qkv, batch, tables, tables * 0, pool, pool, num_heads=1, qk_norm=None, eps=1e-5)
    near[0, 0, 6:8] = qkv[:, -128:]
    assert torch.equal(pool[-2:], near)
    keys = near[[1, 0]].reshape(-1, 128)[:72].double()
    scores = (query[:, 0].double() @ keys.T).masked_fill(torch.arange(72) > torch.tensor([[70], [71]]), float("-inf"))
    assert_near(
        kernels.paged_attention(query, pool, pool, batch, scale=1.0)[:, 0], scores.softmax(-1) @ keys, mean=2e-3
    )


def test_the_norm_adds_the_residual_first(kernels: NativeKernels) -> None:
    # As small as eps, which then counts.
    x, residual, weight = random(5, 48) / 256, random(5, 48, seed=2) / 256, random(48, seed=3)
    total = x + residual
    for before, normed in ((None, x), (residual, total)):
        got = kernels.rms_norm(x, weight, 1e-5, residual=before)
        expected = torch.nn.functional.rms_norm(normed.double(), (48,), weight.double(), 1e-5)
        assert_near(got, expected, mean=4e-3)
    torch.testing.assert_close(residual, total, atol=0, rtol=0)


def test_the_gate(kernels: NativeKernels) -> None:
    gate_up = random(300, 2 * 160) * 20
    gate, up = gate_up.double().chunk(2, -1)
    assert_near(kernels.silu_and_mul(gate_up), torch.nn.functional.silu(gate) * up, mean=0.4)


def test_what_the_kernels_were_not_written_for() -> None:
    fitting = dataclasses.replace(toy_config(), head_dim=64)
    assert problem_of(fitting, BF16) == unavailable_reason()
    assert problem_of(fitting, torch.float32) == "kvscope's own kernels have no float32"
    assert problem_of(dataclasses.replace(fitting, head_dim=80), BF16) == (
        "kvscope's own kernels have no head_dim 80: a multiple of 32 is needed"
    )
    assert problem_of(dataclasses.replace(fitting, intermediate_size=100), BF16) == (
        "kvscope's own kernels have no intermediate_size 100: a multiple of 16 is needed"
    )
