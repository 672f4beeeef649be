"""What each kernel must read, write and compute at least, for the shapes of a model: arithmetic, no tensors.

Bytes are those of tensors that go through memory once; what stays in registers or caches is not counted. A
multiplication with its addition is two operations. So a rate from these figures is a lower bound of the device's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """The least that a launch moves and computes."""

    num_bytes: int
    num_flops: int
    """0 where arithmetic does not matter beside the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The numbers of a decoder's config that kernels see, and the cache's block size."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    block_size: int = 16
    dtype_bytes: int = 2

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in one layer."""
        return 2 * self.num_kv_heads * self.head_dim * self.dtype_bytes


QWEN3_0_6B = ModelShape(
    num_heads=16, num_kv_heads=8, head_dim=128, hidden_size=1024, intermediate_size=3072, vocab_size=151_936
)


def copy(num_bytes: int) -> Work:
    """Of a tensor of so many bytes: each is read and written."""
    return Work(2 * num_bytes, 0)


def product(size: int, dtype_bytes: int) -> Work:
    """Of two square matrices."""
    return Work(3 * size * size * dtype_bytes, 2 * size**3)


def decode_attention(shape: ModelShape, num_seqs: int, seq_len: int) -> Work:
    """Of one token of each sequence: all keys and values are read, queries too, and outputs written."""
    queries = 2 * num_seqs * shape.num_heads * shape.head_dim * shape.dtype_bytes
    # Of each key or value and each query head: a product over head_dim, once for scores and once for the sum.
    flops = 4 * num_seqs * seq_len * shape.num_heads * shape.head_dim
    return Work(num_seqs * seq_len * shape.kv_bytes_per_token + queries, flops)


def prefill_attention(shape: ModelShape, num_tokens: int) -> Work:
    """Of a whole prompt: each token with itself and all before it."""
    queries = 2 * num_tokens * shape.num_heads * shape.head_dim * shape.dtype_bytes
    num_pairs = num_tokens * (num_tokens + 1) // 2
    return Work(num_tokens * shape.kv_bytes_per_token + queries, 4 * num_pairs * shape.num_heads * shape.head_dim)


def rotate_and_cache(shape: ModelShape, num_tokens: int) -> Work:
    """Of all heads, read and written once, with each token's angles (float32), position and slot (8 bytes each)."""
    heads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim * shape.dtype_bytes
    return Work(num_tokens * (2 * heads + 4 * shape.head_dim + 16), 0)


def rms_norm(shape: ModelShape, num_tokens: int) -> Work:
    """With a residual: both are read, the sum and the norm written; the weights once."""
    return Work((4 * num_tokens + 1) * shape.hidden_size * shape.dtype_bytes, 0)


def silu_and_mul(shape: ModelShape, num_tokens: int) -> Work:
    """Gate and up are read, their product written."""
    return Work(3 * num_tokens * shape.intermediate_size * shape.dtype_bytes, 0)


def sample(shape: ModelShape, num_rows: int) -> Work:
    """Logits read once, a token written. Filters read the logits again, out of a cache where they fit."""
    return Work(num_rows * (shape.vocab_size * shape.dtype_bytes + 8), 0)
