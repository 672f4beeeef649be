"""How much memory a KV cache takes: by context length and number of requests, in blocks or in one piece for each.

Plain arithmetic on a model's shape. Knows no pool and no recording.
"""

from __future__ import annotations

from dataclasses import dataclass

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
NUM_REQUESTS = (1, 8, 32, 128)
_SHORTEST = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """What decides the KV cache's size of one token."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str

    @property
    def bytes_per_token(self) -> int:
        """Keys and values, all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRow:
    """Requests that all have the same number of tokens."""

    num_tokens: int
    paged_bytes: tuple[int, ...]
    """For each of `NUM_REQUESTS`: whole blocks."""
    reserved_bytes: tuple[int, ...]
    """The same with one piece a request, as long as the longest sequence may become."""
    wasted_paged: float
    """Share of the blocks' slots that hold no token, in the mean over lengths near this one: half a block."""
    wasted_reserved: float
    """Share of the reserved slots that hold no token."""


def context_lengths(max_model_len: int) -> list[int]:
    """Returns lengths from 256 on, each four times the one before, and the longest."""
    lengths = []
    length = _SHORTEST
    while length < max_model_len:
        lengths.append(length)
        length *= 4
    return [*lengths, max_model_len]


def context_row(shape: KVShape, num_tokens: int, *, block_size: int, max_model_len: int) -> ContextRow:
    """Returns what so many tokens a request take."""
    half_a_block = (block_size - 1) / 2
    slots = -(-num_tokens // block_size) * block_size
    return ContextRow(
        num_tokens=num_tokens,
        paged_bytes=tuple(count * slots * shape.bytes_per_token for count in NUM_REQUESTS),
        reserved_bytes=tuple(count * max_model_len * shape.bytes_per_token for count in NUM_REQUESTS),
        wasted_paged=half_a_block / (num_tokens + half_a_block),
        wasted_reserved=1 - num_tokens / max_model_len,
    )
