"""The scheduler's rules as pure functions of plain figures, after vLLM 0.32.0.

The scheduler calls them to decide, analysis calls them to explain what was decided and what would have been, so the two
cannot differ. Knows no queue, no pool and no event: figures in, a number or a verdict out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.events import QueueTest

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
    # One position is kept for the token that is sampled; a prompt that is too long may have taken it.
    return max(min(gap, token_budget, max_model_len - num_computed_tokens - 1), 0)


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
