"""One request, as far as the events tell. Its tokens are not kept, only their number."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

RequestStatus = Literal["WAITING", "RUNNING", "PREEMPTED", "FINISHED", "ABORTED"]


@dataclass(slots=True)
class RequestState:
    """What is known of one request after the events so far. Steps are step numbers, None where it has not happened."""

    request_id: str
    arrival_step: int
    num_prompt_tokens: int
    max_tokens: int
    priority: int = 0
    arrival_time: float = 0.0
    cache_salt: str | None = None
    lora_name: str | None = None
    status: RequestStatus = "WAITING"
    num_tokens: int = 0
    """Prompt plus output."""
    num_computed_tokens: int = 0
    block_ids: list[int] = field(default_factory=list)
    num_cached_blocks: int = 0
    """How many leading blocks of the table are published (or were hit)."""
    draft_token_ids: tuple[int, ...] = ()
    num_prefill_tokens: int = 0
    """Tokens that existed at its last admission: up to here it computes a prefill, from here on it decodes."""
    num_hit_tokens: int = 0
    """Of its last admission."""
    num_own_hit_tokens: int = 0
    num_preemptions: int = 0
    num_lost_tokens: int = 0
    """Computed tokens thrown away by all its preemptions."""
    waiting_since_step: int = 0
    first_admitted_step: int | None = None
    admitted_step: int | None = None
    first_token_step: int | None = None
    finished_step: int | None = None
    finish_reason: str | None = None

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def is_prefilling(self) -> bool:
        """True while it computes tokens that existed when it was admitted."""
        return self.num_computed_tokens < self.num_prefill_tokens

    def copy(self) -> RequestState:
        """Returns a copy. The block table is shared: it is replaced where it changes, never changed itself."""
        return RequestState(*_request_fields(self))


_request_fields = attrgetter(*(each.name for each in dataclasses.fields(RequestState)))
