"""The scheduler's settings, by their vLLM names."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Policy = Literal["fcfs", "priority"]
Batching = Literal["unified", "static", "exclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """What the scheduler decides by. Defaults and meanings as in vLLM 0.32.0."""

    num_gpu_blocks: int
    """Pool size with the null block: one less is usable."""
    block_size: int = 16
    """Tokens a block."""
    max_num_batched_tokens: int = 2048
    """The token budget of a step."""
    max_num_seqs: int = 64
    max_model_len: int = 2048
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    policy: Policy = "fcfs"
    watermark: float = 0.0
    """Fraction of the pool that admission leaves free while anything runs."""
    scheduler_reserve_full_isl: bool = True
    """Admission needs room for all of a request's tokens, not only for its first chunk."""
    long_prefill_token_threshold: int = 0
    """Most tokens of one request in a step while others are there; 0 is off."""
    num_spec_tokens: int = 0
    num_lookahead_tokens: int | None = None
    """Slots allocated beyond the scheduled tokens of a running request; None is 0."""
    max_num_scheduled_tokens: int | None = None
    """The token budget where it is lower than `max_num_batched_tokens`."""
    connector: bool = False
    kv_load_failure_policy: Literal["recompute", "fail"] = "recompute"
    batching: Batching = "unified"
    """Not a vLLM setting: how a step's batch is made up, to compare with; see `batching`."""

    @property
    def watermark_blocks(self) -> int:
        """The watermark in blocks, rounded down; the null block counts as one of the pool."""
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def token_budget(self) -> int:
        """Most tokens of a step."""
        return min(self.max_num_scheduled_tokens or self.max_num_batched_tokens, self.max_num_batched_tokens)

    @property
    def token_budget_setting(self) -> Literal["max_num_scheduled_tokens", "max_num_batched_tokens"]:
        """The setting that the token budget comes from."""
        is_lower = self.token_budget < self.max_num_batched_tokens
        return "max_num_scheduled_tokens" if is_lower else "max_num_batched_tokens"

    def as_settings(self) -> dict[str, Any]:
        """Returns the settings as recorded in `EngineConfigured.settings`."""
        return dataclasses.asdict(self)
