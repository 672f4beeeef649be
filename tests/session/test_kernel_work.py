"""The bytes and operations that rates are computed from, for numbers small enough to count by hand."""

from __future__ import annotations

from kvscope.session import kernel_work
from kvscope.session.kernel_work import QWEN3_0_6B, ModelShape, Work

SMALL = ModelShape(
    num_heads=4, num_kv_heads=2, head_dim=10, hidden_size=7, intermediate_size=5, vocab_size=11, dtype_bytes=2
)


def test_a_copy_reads_and_writes() -> None:
    assert kernel_work.copy(100) == Work(200, 0)


def test_a_product_of_two_matrices() -> None:
    # Three 3 × 3 matrices of 2 bytes; 9 results of 3 multiplications and additions.
    assert kernel_work.product(3, 2) == Work(54, 54)


def test_a_decode_reads_all_keys_and_values() -> None:
    # A token's keys and values: 2 heads × 10 × 2 bytes, twice = 80. Query and output: 4 × 10 × 2 bytes, twice = 160.
    # Operations: 3 sequences × 6 tokens × 4 heads × 10 × (2 for scores + 2 for sums).
    assert kernel_work.decode_attention(SMALL, 3, 6) == Work(3 * 6 * 80 + 3 * 160, 2880)


def test_a_prefill_sees_the_lower_triangle() -> None:
    # 1 + 2 + 3 pairs of tokens × 4 heads × 10 × 4.
    assert kernel_work.prefill_attention(SMALL, 3) == Work(3 * 80 + 3 * 160, 960)


def test_a_rotation_reads_and_writes_each_head() -> None:
    # 8 heads × 10 × 2 bytes, twice = 320; 10 cosines and sines of 4 bytes; position and slot of 8.
    assert kernel_work.rotate_and_cache(SMALL, 2) == Work(2 * (320 + 40 + 16), 0)


def test_norm_gate_and_sampling() -> None:
    # Two inputs, the sum and the norm, of 7 × 2 bytes; weights once.
    assert kernel_work.rms_norm(SMALL, 3) == Work(3 * 4 * 14 + 14, 0)
    # Gate, up and their product, of 5 × 2 bytes.
    assert kernel_work.silu_and_mul(SMALL, 3) == Work(90, 0)
    # 11 logits of 2 bytes and a token of 8.
    assert kernel_work.sample(SMALL, 4) == Work(120, 0)


def test_the_shape_that_is_measured() -> None:
    assert QWEN3_0_6B.kv_bytes_per_token == 4096
    assert kernel_work.decode_attention(QWEN3_0_6B, 32, 4096).num_bytes == 32 * 4096 * 4096 + 32 * 2 * 4096
