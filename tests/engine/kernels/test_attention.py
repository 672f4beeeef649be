"""The attention kernel in the interpreter, against its definition in float64 and against the torch path."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch

from kvscope.engine.kernels import attention as attention_module
from kvscope.engine.kernels.attention import AttentionBatch, paged_attention
from kvscope.engine.kernels.launch import DeviceProfile, Launch
from kvscope.engine.model import attention as torch_path
from tests.engine.kernels.attention_step import AttentionStep, attention_step
from tests.engine.kernels.closeness import assert_close, assert_guards, guarded_output

AMPERE = DeviceProfile(80, 108, 163 << 10)
HOPPER = DeviceProfile(90, 132, 227 << 10)


def attend(step: AttentionStep, num_splits: int | None) -> torch.Tensor:
    """Runs the kernel into an output that is NaN before."""
    out = guarded_output(*step.query.shape, dtype=step.query.dtype)
    paged_attention(
        step.query, step.key_cache, step.value_cache, step.batch, scale=step.scale, num_splits=num_splits, out=out
    )
    assert_guards(out)
    return out


@pytest.mark.parametrize(
    ("dtype", "heads", "head_dim", "block_size", "lengths", "num_splits"),
    [
        # One token, a block but one, a block, one more; padding first, between and last.
        pytest.param(torch.float32, (4, 2), 64, 16, [0, 1, 15, 0, 16, 17, 33, 0], 1, id="f32-64"),
        pytest.param(torch.bfloat16, (9, 3), 64, 8, [1, 7, 8, 9, 129], 1, id="bf16-64"),
        pytest.param(torch.float16, (4, 4), 80, 64, [63, 64, 65, 1], 1, id="f16-80"),
        pytest.param(torch.float32, (4, 2), 96, 32, [31, 32, 33, 64], 1, id="f32-96"),
        pytest.param(torch.bfloat16, (20, 1), 128, 16, [1, 40], 1, id="bf16-128-one-kv-head"),
        # The shortest split has 128 keys: one key into the second, the last split full, splits of nothing.
        pytest.param(torch.float32, (4, 2), 64, 16, [128, 129, 1, 256, 0], 2, id="f32-64-split-2"),
        pytest.param(torch.float16, (3, 1), 128, 32, [520, 300, 128, 256], 4, id="f16-128-split-4"),
        pytest.param(torch.bfloat16, (2, 2), 80, 8, [257, 2], 16, id="bf16-80-split-16"),
        pytest.param(torch.float32, (2, 1), 96, 64, [450, 3], 3, id="f32-96-split-3"),
    ],
)
def test_decodes(
    dtype: torch.dtype,
    heads: tuple[int, int],
    head_dim: int,
    block_size: int,
    lengths: Sequence[int],
    num_splits: int,
) -> None:
    step = attention_step(dtype, heads, head_dim, block_size, [(length, 1) for length in lengths])

    assert_close(attend(step, num_splits), step.expected)


# Hopper's tile has 128 rows of (token, head of the group), Ampere's 64: 42 and 21 tokens of a group of 3.
@pytest.mark.parametrize(
    ("dtype", "profile", "heads", "head_dim", "block_size", "sequences"),
    [
        # Chunks a tile long, one less, one more, and two tiles; after nothing, after a block, after part of one.
        pytest.param(
            torch.float16, HOPPER, (3, 1), 64, 8, [(42, 42), (8 + 41, 41), (43, 43), (5 + 84, 84)], id="f16-hopper"
        ),
        pytest.param(
            torch.bfloat16, AMPERE, (3, 1), 128, 16, [(21, 21), (16 + 20, 20), (22, 22), (3 + 43, 43)], id="bf16-ampere"
        ),
        pytest.param(torch.float32, HOPPER, (4, 2), 80, 16, [(8, 8), (23, 7), (9, 9), (33, 17)], id="f32"),
        # Decodes between chunks, long and short, and padding; two tokens are a chunk.
        pytest.param(
            torch.float32,
            HOPPER,
            (4, 2),
            96,
            32,
            [(0, 0), (150, 1), (10, 10), (1, 1), (0, 0), (2, 2), (33, 1), (40, 3), (0, 0)],
            id="f32-mixed",
        ),
        pytest.param(
            torch.bfloat16, HOPPER, (4, 2), 128, 64, [(140, 70), (350, 1), (65, 65), (64, 1)], id="bf16-mixed"
        ),
        pytest.param(torch.float16, AMPERE, (2, 2), 80, 8, [(170, 1), (65, 65), (7, 1)], id="f16-mixed-ampere"),
    ],
)
@pytest.mark.parametrize("num_splits", [1, 2])
def test_mixed_batches(
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    profile: DeviceProfile,
    heads: tuple[int, int],
    head_dim: int,
    block_size: int,
    sequences: Sequence[tuple[int, int]],
    num_splits: int,
) -> None:
    monkeypatch.setattr(attention_module, "profile_of", lambda device: profile)
    step = attention_step(dtype, heads, head_dim, block_size, sequences, num_padding_tokens=2)

    assert_close(attend(step, num_splits), step.expected)


def test_more_sequences_than_are_looked_at_at_once() -> None:
    """The sequence of a tile is found by looking at 128 sequences after another."""
    sequences = [(1, 1)] * 127 + [(3, 2), (4, 2), (2, 1)] + [(0, 0)] * 3
    step = attention_step(torch.float32, (1, 1), 64, 8, sequences)

    assert_close(attend(step, 1), step.expected)


def test_scores_that_overflow_an_exponential() -> None:
    """Without the running maximum 2**scores would be inf; the first key of a later tile is the largest."""
    step = attention_step(torch.float32, (2, 1), 64, 16, [(100, 1), (40, 1)])
    query = step.query * 1e3
    table = step.batch.block_tables
    exact = query.double() @ step.key_cache[table[0, :6].long()].double().flatten(0, 2).T
    assert float(exact[0].max()) * step.scale > 1000

    out = paged_attention(query, step.key_cache, step.value_cache, step.batch, scale=step.scale, num_splits=1)

    assert torch.isfinite(out).all()
    first = exact[0, 0].argmax()
    assert_close(out[0, 0], step.value_cache[table[0, first // 16].long(), 0, first % 16])


def test_is_what_the_torch_path_gives() -> None:
    cache = torch_path.PagedKVCache(
        num_layers=2,
        num_blocks=20,
        num_kv_heads=2,
        block_size=8,
        head_dim=64,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    generator = torch.Generator().manual_seed(1)
    cache.key.normal_(generator=generator)
    cache.value.normal_(generator=generator)
    spans = [
        torch_path.Span(num_computed_tokens=9, num_tokens=1, block_ids=[3, 7]),
        torch_path.Span(num_computed_tokens=20, num_tokens=1, block_ids=[1, 9, 2]),
        torch_path.Span(num_computed_tokens=0, num_tokens=11, block_ids=[11, 4]),
        torch_path.Span(num_computed_tokens=5, num_tokens=6, block_ids=[12, 5]),
    ]
    query = torch.randn((19, 4, 64), generator=generator)
    metadata = torch_path.build_metadata(spans, cache)
    batch = AttentionBatch(
        query_starts=torch.tensor([0, 1, 2, 13, 19], dtype=torch.int32),
        seq_lens=torch.tensor([10, 21, 11, 11], dtype=torch.int32),
        block_tables=torch.tensor([[3, 7, 0], [1, 9, 2], [11, 4, 0], [12, 5, 0]], dtype=torch.int32),
        slot_mapping=torch.zeros(19, dtype=torch.int64),
        max_query_len=11,
        max_seq_len=21,
    )

    out = paged_attention(query, cache.key[1], cache.value[1], batch, scale=0.125)

    assert_close(out.view(19, -1), torch_path.paged_attention(query, 1, cache, metadata, 0.125))


def test_blocks_far_into_a_large_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind 2**31 numbers, where 32 bits are too few; memory that nobody touches takes none."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    step = attention_step(torch.bfloat16, (2, 1), 128, 64, [(70, 2), (65, 1)])
    num_blocks = (1 << 31) // (64 * 128) + len(step.key_cache)
    pool = torch.empty((num_blocks, 1, 64, 128), dtype=torch.bfloat16)
    pool[-len(step.key_cache) :] = step.key_cache
    batch = dataclasses.replace(step.batch, block_tables=step.batch.block_tables + num_blocks - len(step.key_cache))

    out = paged_attention(step.query, pool, pool, batch, scale=step.scale, num_splits=1)

    near = paged_attention(step.query, step.key_cache, step.key_cache, step.batch, scale=step.scale, num_splits=1)
    assert torch.equal(out, near)


def test_a_step_of_nothing() -> None:
    batch = AttentionBatch(
        query_starts=torch.zeros(1, dtype=torch.int32),
        seq_lens=torch.zeros(0, dtype=torch.int32),
        block_tables=torch.zeros((0, 4), dtype=torch.int32),
        slot_mapping=torch.zeros(0, dtype=torch.int64),
        max_query_len=1,
        max_seq_len=0,
    )
    cache = torch.zeros((2, 1, 8, 64))

    assert paged_attention(torch.zeros((0, 1, 64)), cache, cache, batch, scale=1.0).shape == (0, 1, 64)


@pytest.mark.parametrize(
    ("num_seqs", "max_seq_len", "num_splits"),
    [
        (1, 40_960, 33),  # 264 programs, two for each processor
        (1, 4096, 32),  # none with less than 128 keys
        (1, 255, 1),
        (8, 40_960, 4),  # 256 programs
        (17, 40_960, 3),  # 136 would leave nearly half idle, 408 a quarter
        (32, 40_960, 1),
        (33, 40_960, 1),
        (256, 40_960, 1),
    ],
)
def test_as_many_splits_as_occupy_the_device(
    monkeypatch: pytest.MonkeyPatch, num_seqs: int, max_seq_len: int, num_splits: int
) -> None:
    """Eight key/value heads, so many programs a sequence, on 132 processors."""
    grids: list[tuple[int, int, int]] = []

    def keep(launch: Launch) -> None:
        grids.append(launch.grid)

    monkeypatch.setattr(Launch, "run", keep)
    batch = AttentionBatch(
        query_starts=torch.zeros(num_seqs + 1, dtype=torch.int32),
        seq_lens=torch.zeros(num_seqs, dtype=torch.int32),
        block_tables=torch.zeros((num_seqs, 1), dtype=torch.int32),
        slot_mapping=torch.zeros(num_seqs, dtype=torch.int64),
        max_query_len=1,
        max_seq_len=max_seq_len,
    )
    cache = torch.zeros((2, 8, 16, 64))

    paged_attention(torch.zeros((num_seqs, 16, 64)), cache, cache, batch, scale=1.0)

    sums = [] if num_splits == 1 else [(num_seqs, 16, 1)]
    assert grids == [(num_seqs, 8, num_splits), *sums]


def test_refuses_what_the_kernel_was_not_written_for() -> None:
    step = attention_step(torch.float32, (4, 2), 64, 16, [(3, 1)])

    def refusal(
        query: torch.Tensor = step.query, cache: torch.Tensor = step.key_cache, num_splits: int | None = None
    ) -> str:
        with pytest.raises(ValueError) as caught:
            paged_attention(query, cache, cache, step.batch, scale=1.0, num_splits=num_splits)
        return str(caught.value)

    assert refusal(query=torch.zeros(1, 4, 72), cache=torch.zeros(4, 2, 16, 72)) == (
        "head_dim is 72; one of (64, 80, 96, 128) is needed"
    )
    assert refusal(cache=torch.zeros(4, 2, 12, 64)) == "block_size is 12; one of (8, 16, 32, 64) is needed"
    assert refusal(cache=torch.zeros(4, 3, 16, 64)) == (
        "num_heads is 4; a multiple of the 3 key/value heads is needed, at most 32 times as many"
    )
    assert refusal(cache=step.key_cache.half()) == (
        "key_cache is torch.float16 [4, 2, 16, 64] on cpu; torch.float32 [4, 2, 16, 64] on cpu is needed"
    )
    assert refusal(query=step.query.double()) == "query is torch.float64; float32, float16 or bfloat16 is needed"
    assert refusal(query=torch.zeros(2, 4, 64)) == ("2 tokens of 1 sequences; where each has one, as many are needed")
    assert refusal(num_splits=65) == "num_splits is 65; 1 to 64 are possible"
