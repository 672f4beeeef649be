"""The hash chain of the prefix cache: a block is known by its tokens and by all that comes before them.

After vLLM 0.32.0's kv_cache_utils, with a packing of its own: which blocks are equal is the same, the bytes are not.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from hashlib import sha256

HASH_BYTES = 16
NONE_HASH = bytes(HASH_BYTES)
"""Stands for the parent of a request's first block."""

MAX_TOKEN_ID = 2**32 - 1
"""Token ids are hashed as 32 unsigned bits."""


def extra_keys(cache_salt: str | None, lora_name: str | None = None) -> tuple[str, ...]:
    """Returns what besides its tokens makes a request's first block distinct (and, by the chain, all behind it).

    Each key is tagged: an adapter and a salt of the same name do not meet (vllm-project/vllm #44701).
    """
    lora = () if lora_name is None else ("lora", lora_name)
    return lora if cache_salt is None else (*lora, "cache_salt", cache_salt)


def extend_block_hashes(
    block_hashes: list[bytes], token_ids: Sequence[int], num_blocks: int, block_size: int, extra: tuple[str, ...] = ()
) -> None:
    """Appends chain hashes until there are `num_blocks`; the tokens must fill these blocks.

    A block's hash is a digest over its parent's hash, its tokens and, in block 0, the extra keys: equal hashes mean
    equal tokens from the start on.
    """
    first = len(block_hashes)
    tokens = token_ids[first * block_size : num_blocks * block_size]
    packed = struct.pack(f"<{len(tokens)}I", *tokens)
    num_bytes = 4 * block_size
    assert len(packed) == (num_blocks - first) * num_bytes, "a block that is not full has no hash"
    parent = block_hashes[-1] if block_hashes else NONE_HASH + _packed_keys(extra)
    for start in range(0, len(packed), num_bytes):
        parent = sha256(parent + packed[start : start + num_bytes]).digest()[:HASH_BYTES]
        block_hashes.append(parent)


def _packed_keys(extra: tuple[str, ...]) -> bytes:
    """Returns the keys with their lengths, so that no two tuples of them read the same."""
    encoded = [key.encode() for key in extra]
    return b"".join(len(key).to_bytes(4, "little") + key for key in encoded)


def block_hashes(token_ids: Sequence[int], block_size: int, extra: tuple[str, ...] = ()) -> list[bytes]:
    """Returns the chain hashes of all full blocks of the tokens."""
    hashes: list[bytes] = []
    extend_block_hashes(hashes, token_ids, len(token_ids) // block_size, block_size, extra)
    return hashes


def short_hash(block_hash: bytes) -> int:
    """Returns a hash as events carry it: its first eight bytes as an unsigned number."""
    return int.from_bytes(block_hash[:8], "big")


def short_hashes(block_hashes: Sequence[bytes]) -> tuple[int, ...]:
    """Returns the same of several hashes: while recording, of every block that a prefill evicts or publishes."""
    numbers = array("Q", b"".join(block_hashes))[:: HASH_BYTES // 8]
    if sys.byteorder == "little":
        numbers.byteswap()
    return tuple(numbers)
