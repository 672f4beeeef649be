"""Norm, rotation and cache write in the interpreter, against rotation as a product of complex numbers in float64."""

from __future__ import annotations

import pytest
import torch

from kvscope.engine.kernels.rotary import rotate_and_cache
from tests.engine.kernels.closeness import assert_close, assert_guards, guarded_output


def rotated(heads: torch.Tensor, angles: torch.Tensor, qk_norm: torch.Tensor | None, eps: float) -> torch.Tensor:
    """heads `[num_tokens, num_heads, head_dim]`, angles `[num_tokens, head_dim // 2]`."""
    heads = heads.double()
    if qk_norm is not None:
        heads = heads / (heads.pow(2).mean(-1, keepdim=True) + eps).sqrt() * qk_norm.double()
    low, high = heads.chunk(2, -1)
    turned = torch.complex(low, high) * torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
    return torch.cat([turned.real, turned.imag], -1)


@pytest.mark.parametrize(
    ("dtype", "table_dtype", "heads", "head_dim", "block_size", "has_norm"),
    [
        pytest.param(torch.float32, torch.float32, (3, 1), 64, 8, True, id="f32-64"),
        pytest.param(torch.bfloat16, torch.float32, (9, 3), 64, 16, False, id="bf16-64"),
        pytest.param(torch.float16, torch.float32, (6, 6), 80, 32, False, id="f16-80-two-tiles"),
        pytest.param(torch.bfloat16, torch.float32, (14, 2), 96, 64, True, id="bf16-96-two-tiles"),
        pytest.param(torch.float16, torch.float32, (32, 8), 128, 16, True, id="f16-128-three-tiles"),
        pytest.param(torch.bfloat16, torch.bfloat16, (2, 1), 128, 8, False, id="bf16-tables"),
    ],
)
def test_queries_keys_and_values(
    dtype: torch.dtype,
    table_dtype: torch.dtype,
    heads: tuple[int, int],
    head_dim: int,
    block_size: int,
    has_norm: bool,
) -> None:
    num_heads, num_kv_heads = heads
    num_rotated, num_all = num_heads + num_kv_heads, num_heads + 2 * num_kv_heads
    torch.manual_seed(head_dim + block_size)
    # First and last position and slot; two tokens of one block; padding, which must write nothing.
    positions = torch.tensor([0, 99, 31, 32, 50])
    slots = torch.tensor([block_size, 4 * block_size - 1, 2 * block_size + 3, 2 * block_size + 4, -1])
    qkv = torch.randn(5, num_all, head_dim).to(dtype)
    angles = torch.rand(100, head_dim // 2, dtype=torch.float64) * 6 - 3
    qk_norm = torch.randn(num_rotated, head_dim).to(dtype) if has_norm else None
    key_cache = torch.full((4, num_kv_heads, block_size, head_dim), float("nan"), dtype=dtype)
    value_cache = key_cache.clone()
    out = guarded_output(5, num_heads, head_dim, dtype=dtype)

    rotate_and_cache(
        qkv.view(5, -1),
        positions,
        angles.cos().to(table_dtype),
        angles.sin().to(table_dtype),
        key_cache,
        value_cache,
        slots,
        num_heads=num_heads,
        qk_norm=qk_norm,
        eps=1e-3,
        out=out,
    )

    expected = rotated(qkv[:, :num_rotated], angles[positions], qk_norm, 1e-3)
    expected_keys = torch.full(key_cache.shape, float("nan"), dtype=torch.float64)
    expected_values = torch.full_like(value_cache, float("nan"))
    for token, slot in enumerate(slots.tolist()[:-1]):
        expected_keys[slot // block_size, :, slot % block_size] = expected[token, num_heads:]
        expected_values[slot // block_size, :, slot % block_size] = qkv[token, num_rotated:]
    assert_close(out, expected[:, :num_heads])
    assert_guards(out)
    assert_close(key_cache, expected_keys)
    assert torch.equal(value_cache.nan_to_num(9.0), expected_values.nan_to_num(9.0))


def test_slots_far_into_a_large_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind 2**31 numbers, where 32 bits are too few; memory that nobody touches takes none."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    num_blocks = (1 << 31) // (64 * 128) + 2
    pool = torch.empty((num_blocks, 1, 64, 128), dtype=torch.bfloat16)
    qkv, table = torch.randn(1, 3 * 128).to(torch.bfloat16), torch.ones(1, 64)

    slots = torch.tensor([num_blocks * 64 - 1])
    rotate_and_cache(qkv, torch.zeros(1, dtype=torch.int64), table, table * 0, pool, pool, slots, num_heads=1)

    assert torch.equal(pool[-1, 0, 63], qkv[0, -128:])


def test_refuses_what_does_not_fit() -> None:
    cache = torch.zeros(4, 2, 8, 64)
    tokens = torch.zeros(3, dtype=torch.int64)
    table = torch.zeros(10, 32)

    def refusal(
        qkv: torch.Tensor | None = None,
        positions: torch.Tensor = tokens,
        cos: torch.Tensor = table,
        value_cache: torch.Tensor = cache,
        qk_norm: torch.Tensor | None = None,
    ) -> str:
        qkv = torch.zeros(3, 8 * 64) if qkv is None else qkv
        with pytest.raises(ValueError) as caught:
            rotate_and_cache(qkv, positions, cos, table, cache, value_cache, tokens, num_heads=4, qk_norm=qk_norm)
        return str(caught.value)

    assert refusal(qkv=torch.zeros(3, 500)) == "qkv is [3, 500]; [num_tokens, 512] is needed"
    assert refusal(positions=tokens.int()) == ("positions is torch.int32 [3] on cpu; torch.int64 [3] on cpu is needed")
    assert refusal(cos=torch.zeros(10, 64)) == "cos is [10, 64]; [num_positions, 32] is needed"
    assert refusal(value_cache=torch.zeros(4, 2, 8, 80)) == (
        "value_cache is torch.float32 [4, 2, 8, 80] on cpu; torch.float32 [4, 2, 8, 64] on cpu is needed"
    )
    assert refusal(qk_norm=torch.zeros(64)) == (
        "qk_norm is torch.float32 [64] on cpu; torch.float32 [6, 64] on cpu is needed"
    )
