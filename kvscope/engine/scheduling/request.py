"""A request as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class RequestStatus(IntEnum):
    """vLLM's states, as far as they exist here. Everything from FINISHED_STOPPED on is finished."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED_STOPPED = 3
    FINISHED_LENGTH = 4
    FINISHED_ABORTED = 5
    FINISHED_ERROR = 6

    @property
    def is_finished(self) -> bool:
        """It is in no queue any more, and holds no block."""
        return self >= RequestStatus.FINISHED_STOPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How a request's tokens are chosen and when it stops. Names and defaults as in vLLM and the OpenAI API."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    max_tokens: int = 16
    min_tokens: int = 0
    logprobs: int | None = None
    """How many top logprobs come with each token; 0 is the sampled one's alone, None is off."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


@dataclass(slots=True, eq=False)
class Request:
    """One request's tokens, progress and block table. Owned by the scheduler; others read."""

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    arrival_time: float = 0.0
    """Seconds; ties of `priority` are decided by it."""
    priority: int = 0
    """Smaller is more urgent."""
    cache_salt: str | None = None
    lora_name: str | None = None
    """The adapter, as far as scheduling knows it: by its name."""
    eos_token_ids: tuple[int, ...] = ()
    prompt: str | None = None
    """The text as it was given, for the recording."""
    arrival_ns: int = 0
    template_ns: int = 0
    tokenize_ns: int = 0

    status: RequestStatus = RequestStatus.WAITING
    all_token_ids: list[int] = field(init=False)
    """Prompt, then output."""
    num_computed_tokens: int = 0
    block_ids: list[int] = field(default_factory=list)
    """The block table."""
    num_cached_blocks: int | None = None
    """Leading blocks that are published; None until the first hit or publication after each (re)admission."""
    num_settled_tokens: int = 0
    """Up to so many tokens fit the table and the model, and no further block becomes full: one more is just that."""
    block_hashes: list[bytes] = field(default_factory=list)
    """Chain hashes of its leading full blocks, as far as they were needed; kept over preemptions."""
    spec_token_ids: list[int] = field(default_factory=list)
    """Drafts to be verified in its next step."""
    num_preemptions: int = 0
    num_hit_tokens: int = 0
    """Over all its admissions."""
    num_prompt_hit_tokens: int = 0
    """At its first admission."""
    is_prefill_chunk: bool = False
    """Its last schedule did not reach the end of its tokens."""
    stop_reason: str | None = None
    """The stop string or stop token id that ended it, if one did."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Room for what a caller keeps with the request (a drafter's script, a stream); the scheduler never looks."""

    max_total_tokens: int = field(init=False)
    """Prompt and output together end it here; the scheduler lowers it to `max_model_len`."""
    ending_token_ids: frozenset[int] = field(init=False)
    """Tokens that end it: its stop token ids, and the end of sequence unless that is ignored.

    Also before `min_tokens`, as in vLLM 0.32.0: the sampler does not choose any of them so early.
    """

    def __post_init__(self) -> None:
        self.all_token_ids = list(self.prompt_token_ids)
        self.max_total_tokens = len(self.prompt_token_ids) + self.sampling.max_tokens
        eos_token_ids = () if self.sampling.ignore_eos else self.eos_token_ids
        self.ending_token_ids = frozenset(self.sampling.stop_token_ids).union(eos_token_ids)

    def append_output(self, token_ids: list[int]) -> list[int]:
        """Appends sampled tokens until one ends the request, sets `status` then, and returns those that were kept.

        A stop token that is also the last one allowed is a stop (vLLM 0.32.0, `check_stop`).
        """
        self.all_token_ids += token_ids
        if self.ending_token_ids.isdisjoint(token_ids) and len(self.all_token_ids) < self.max_total_tokens:
            return token_ids
        num_before = len(self.all_token_ids) - len(token_ids)
        for num_kept, token_id in enumerate(token_ids, 1):
            if token_id in self.ending_token_ids:
                self.status = RequestStatus.FINISHED_STOPPED
                is_end_of_sequence = token_id in self.eos_token_ids and not self.sampling.ignore_eos
                self.stop_reason = None if is_end_of_sequence else str(token_id)
            elif num_before + num_kept >= self.max_total_tokens:
                self.status = RequestStatus.FINISHED_LENGTH
            else:
                continue
            del self.all_token_ids[num_before + num_kept :]
            return token_ids[:num_kept]
        raise AssertionError("a token that ends the request was there")

    @property
    def num_tokens(self) -> int:
        """Prompt and output; drafts are none of them."""
        return len(self.all_token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.all_token_ids) - len(self.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        """A copy of the tokens generated so far."""
        return self.all_token_ids[len(self.prompt_token_ids) :]
