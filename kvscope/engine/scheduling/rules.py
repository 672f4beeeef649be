"""The scheduler's rules as pure functions of plain figures, after vLLM 0.32.0.

The scheduler calls them to decide, analysis calls them to explain what was decided and what would have been, so the two
cannot differ. Knows no queue, no pool and no event: figures in, a number or a verdict out.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypedDict

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.events import QueueTest

# --- block hashes -----------------------------------------------------------------------------------------------------

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


# --- blocks -----------------------------------------------------------------------------------------------------------


def num_blocks_for(num_tokens: int, block_size: int) -> int:
    """Returns how many blocks hold so many tokens."""
    return -(-num_tokens // block_size)


def max_hit_blocks(num_tokens: int, block_size: int) -> int:
    """Returns how many leading blocks may be hit: one token is always computed anew, for logits are not cached."""
    return (num_tokens - 1) // block_size


def blocks_needed(
    num_tokens: int, block_size: int, num_table_blocks: int, num_hit_blocks: int = 0, num_free_hit_blocks: int = 0
) -> int:
    """Returns how many free blocks it takes for a table to hold so many tokens.

    A hit that lies in the free queue costs one free block, as it leaves the queue; a hit in use costs none.
    """
    return max(num_blocks_for(num_tokens, block_size) - num_table_blocks - num_hit_blocks, 0) + num_free_hit_blocks


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why blocks are not given. All figures in blocks."""

    reason: Literal["blocks", "watermark", "full_isl", "full_isl_watermark"]
    need_step: int
    need_full: int
    num_free_blocks: int
    watermark_blocks: int

    @property
    def need(self) -> int:
        """The need that the failed test compared."""
        return self.need_full if self.reason.startswith("full") else self.need_step


def allocation_shortage(
    *, need_step: int, need_full: int, must_full_fit: bool, watermark_blocks: int, num_free_blocks: int
) -> Shortage | None:
    """The two tests of an allocation, in order: all the request's tokens (where asked), then this step's."""
    reason: Literal["blocks", "watermark", "full_isl", "full_isl_watermark"]
    if must_full_fit and need_full + watermark_blocks > num_free_blocks:
        reason = "full_isl" if need_full > num_free_blocks else "full_isl_watermark"
    elif need_step + watermark_blocks > num_free_blocks:
        reason = "blocks" if need_step > num_free_blocks else "watermark"
    else:
        return None
    return Shortage(reason, need_step, need_full, num_free_blocks, watermark_blocks)


def applied_watermark(watermark_blocks: int, num_running: int) -> int:
    """Returns the blocks that an admission leaves free: none while nothing runs, or nobody could ever start."""
    return watermark_blocks if num_running else 0


# --- tokens -----------------------------------------------------------------------------------------------------------


def effective_threshold(long_prefill_token_threshold: int, num_requests: int) -> int:
    """Returns the cap on one request's tokens in a step; 0 is none: a request that is alone starves nobody."""
    return long_prefill_token_threshold if num_requests > 1 else 0


def running_tokens(
    num_tokens_with_spec: int, num_computed_tokens: int, threshold: int, token_budget: int, max_model_len: int
) -> int:
    """Returns how many tokens a running request gets; 0 skips it for this step."""
    gap = num_tokens_with_spec - num_computed_tokens
    if 0 < threshold < gap:
        gap = threshold
    # One position is kept for the token that is sampled.
    return min(gap, token_budget, max_model_len - num_computed_tokens - 1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A test that the head of the waiting queue failed; units as in `events.RequestBlocked`."""

    reason: QueueTest
    need: int
    have: int
    watermark_blocks: int = 0


@dataclass(frozen=True, slots=True)
class AdmissionTokens:
    """What an admitted request computes in its first step."""

    num_new_tokens: int
    num_placeholder_drafts: int = 0
    """Drafts that are sure to be rejected: they pad a single token to the size of a speculating request."""


def queue_verdict(*, token_budget: int, num_running: int, max_num_seqs: int) -> Verdict | None:
    """The tests that need no look at the head of the queue: budget left, a sequence left."""
    if token_budget <= 0:
        return Verdict("budget", 1, token_budget)
    if num_running >= max_num_seqs:
        return Verdict("max_num_seqs", num_running + 1, max_num_seqs)
    return None


def admission_tokens(
    config: SchedulerConfig,
    *,
    num_tokens: int,
    num_hit_tokens: int,
    token_budget: int,
    threshold: int,
    has_scheduled_running: bool,
    has_scheduled_prefill: bool,
) -> AdmissionTokens | Verdict:
    """Returns how many tokens the head of the queue gets once admitted, or the test that it fails.

    `has_scheduled_running`: a running request was scheduled in this step before the waiting loop;
    `has_scheduled_prefill`: one of them was in the middle of its prompt.
    """
    gap = num_tokens - num_hit_tokens
    padded = 1 + config.num_spec_tokens
    # vLLM asserts that no threshold cuts a padded request; here it is then not padded.
    if (
        padded > 1 == gap
        and not has_scheduled_prefill
        and (has_scheduled_running or num_hit_tokens > 0)
        and num_hit_tokens + padded + 1 <= config.max_model_len
        and not 0 < threshold < padded
    ):
        if padded > token_budget:
            return Verdict("spec_pad_budget", padded, token_budget)
        return AdmissionTokens(padded, padded - 1)
    if 0 < threshold < gap:
        gap = threshold
    if gap > token_budget and not config.enable_chunked_prefill:
        return Verdict("chunked_prefill_off", gap, token_budget)
    return AdmissionTokens(min(gap, token_budget))


def admission_verdict(
    config: SchedulerConfig,
    *,
    token_budget: int,
    num_running: int,
    num_requests: int,
    num_tokens: int,
    num_hit_blocks: int,
    num_free_hit_blocks: int,
    num_free_blocks: int,
    has_scheduled_running: bool,
    has_scheduled_prefill: bool,
) -> Verdict | None:
    """All tests of an admission in their order, as if the request stood at the head of the queue: None admits.

    `num_requests` counts running and waiting ones at the start of the step (the threshold depends on it), the other
    figures are those of the moment. The scheduler takes the same steps one by one.
    """
    verdict = queue_verdict(token_budget=token_budget, num_running=num_running, max_num_seqs=config.max_num_seqs)
    if verdict is not None:
        return verdict
    num_hit_tokens = num_hit_blocks * config.block_size
    tokens = admission_tokens(
        config,
        num_tokens=num_tokens,
        num_hit_tokens=num_hit_tokens,
        token_budget=token_budget,
        threshold=effective_threshold(config.long_prefill_token_threshold, num_requests),
        has_scheduled_running=has_scheduled_running,
        has_scheduled_prefill=has_scheduled_prefill,
    )
    if isinstance(tokens, Verdict):
        return tokens
    num_slots = num_hit_tokens + tokens.num_new_tokens + (config.num_lookahead_tokens or 0)
    shortage = allocation_shortage(
        need_step=blocks_needed(
            min(num_slots, config.max_model_len), config.block_size, 0, num_hit_blocks, num_free_hit_blocks
        ),
        need_full=blocks_needed(
            min(num_tokens, config.max_model_len), config.block_size, 0, num_hit_blocks, num_free_hit_blocks
        ),
        must_full_fit=config.scheduler_reserve_full_isl,
        watermark_blocks=applied_watermark(config.watermark_blocks, num_running),
        num_free_blocks=num_free_blocks,
    )
    return None if shortage is None else blocked_by(shortage)


def blocked_by(shortage: Shortage) -> Verdict:
    """Returns a shortage as the verdict on the head of the queue."""
    return Verdict(shortage.reason, shortage.need, shortage.num_free_blocks, shortage.watermark_blocks)


class PlannedRequest(TypedDict):
    """A request of `unified_token_plan`."""

    id: str
    status: Literal["running", "waiting"]
    computed: int
    total_with_spec: int


def unified_token_plan(requests: Iterable[PlannedRequest], token_budget: int) -> tuple[dict[str, int], int]:
    """Returns each request's share of the budget and what is left of it.

    The budget split by itself, without blocks, sequences or caps: running requests first, then waiting ones, each takes
    the smaller of its gap and the budget; prefill, decode and verification of drafts are all gaps. What the scheduler
    decides where blocks and sequences are ample equals it.

    Raises:
        ValueError: the budget is negative, or a request's counters are.
    """
    requests = list(requests)
    if token_budget < 0:
        raise ValueError("negative token budget")
    if any(r["computed"] < 0 or r["total_with_spec"] < r["computed"] for r in requests):
        raise ValueError("invalid request counters")
    plan: dict[str, int] = {}
    for status in ("running", "waiting"):
        for request in requests:
            take = min(request["total_with_spec"] - request["computed"], token_budget)
            if request["status"] == status and take:
                plan[request["id"]] = take
                token_budget -= take
    return plan, token_budget
