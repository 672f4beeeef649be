"""KV memory of shapes whose sizes are known."""

from __future__ import annotations

from kvscope.analysis.kv_memory import ContextRow, KVShape, context_lengths, context_row
from kvscope.cli.model_memory import byte_size

SMOLLM2 = KVShape(num_layers=30, num_kv_heads=3, head_dim=64, dtype="bfloat16")


def test_bytes_of_a_token() -> None:
    assert SMOLLM2.bytes_per_token == 23_040
    # Llama 3 8B: 32 layers, 8 key/value heads of 128, 16 bits: 128 KiB a token.
    assert KVShape(num_layers=32, num_kv_heads=8, head_dim=128, dtype="float16").bytes_per_token == 131_072


def test_paged_against_reserved() -> None:
    """1,000 tokens take 63 blocks of 16; reserved they take the 8,192 that they might become."""
    row = context_row(SMOLLM2, 1000, block_size=16, max_model_len=8192)
    assert row == ContextRow(
        num_tokens=1000,
        paged_bytes=(23_224_320, 185_794_560, 743_178_240, 2_972_712_960),
        reserved_bytes=(188_743_680, 1_509_949_440, 6_039_797_760, 24_159_191_040),
        wasted_paged=7.5 / 1007.5,
        wasted_reserved=1 - 1000 / 8192,
    )


def test_lengths_end_with_the_longest() -> None:
    assert context_lengths(8192) == [256, 1024, 4096, 8192]
    assert context_lengths(4096) == [256, 1024, 4096]
    assert context_lengths(100) == [100]


def test_sizes_have_three_digits() -> None:
    assert [byte_size(size) for size in (0, 1023, 1024, 188_743_680, 1_509_949_440, 24_159_191_040)] == [
        "0 B",
        "1,023 B",
        "1.00 KiB",
        "180 MiB",
        "1.41 GiB",
        "22.5 GiB",
    ]
