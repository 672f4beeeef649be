"""All that a screen or a command shows of one request at a step: facts, block table, sharers, life, where time went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvscope.analysis.pool_view import BlockChange
from kvscope.analysis.spans import Sentence, Span
from kvscope.analysis.step_facts import StepShare
from kvscope.state import RequestStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """One request after a step."""

    request_id: str
    status: RequestStatus | Literal["NOT_ARRIVED"]
    """With NOT_ARRIVED, and where it ended before the step, only the figures of the request as a whole are known."""
    phase: str
    """One word: waiting, preempted, prefill, decode, finished, aborted, or not arrived."""
    num_prompt_tokens: int
    num_output_tokens: int
    max_tokens: int
    num_tokens: int
    num_computed_tokens: int
    num_blocks: int
    num_new_blocks: int
    """Allocated in this step."""
    share: StepShare | None
    """What it got in this step."""
    priority: int
    cache_salt: str | None
    sampling: str
    """The settings that differ from their defaults, as `name value` in words; `default` where none does."""
    arrival_step: int
    waiting_since_step: int | None
    """None where it does not wait."""
    first_admitted_step: int | None
    first_token_step: int | None
    finished_step: int | None
    finish_reason: str | None
    num_preemptions: int
    num_lost_tokens: int
    num_hit_tokens: int
    num_own_hit_tokens: int
    num_hit_blocks: int
    hit: tuple[Span, ...]
    """`80 tokens hit, 5 blocks of req-2`, or why there was none; empty where it was not admitted yet."""
    queue_position: int | None
    """Place in the waiting queue, 0 is the head."""
    prompt: str
    """Visible text of the prompt: as it was given, else its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRow:
    """One row of a block table."""

    index: int
    block_id: int
    change: BlockChange
    """What the request's step did with it."""
    ref_cnt: int
    is_published: bool
    is_hit: bool
    """Taken over from the cache at the last admission: the rows before `hit ends`."""
    origin_id: str | None
    """The request that computed it, where it is published."""
    since_step: int | None
    """When this request got it; None where that is not known cheaply."""
    text: str
    num_tokens: int
    """How many of its slots are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTableView:
    """Rows of a block table that were asked for; `num_blocks` says how long the whole is."""

    num_blocks: int
    num_hit_blocks: int
    rows: tuple[BlockRow, ...]


@dataclass(frozen=True, slots=True)
class Sharer:
    """Another request that holds the same blocks now."""

    request_id: str
    num_blocks: int
    num_tokens: int


LifeState = Literal["waiting", "prefill", "decode", "preempted", "nothing", "finished"]
"""`preempted` is waiting again; `nothing` is running without a token; `finished` is the last step itself."""


@dataclass(frozen=True, slots=True)
class LifeRun:
    """Steps `first_step` to `last_step`, both included, in which a request was in one state."""

    state: LifeState
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShare:
    """How much of a request's time until the step went into one state."""

    state: Literal["waiting", "prefill", "decode"]
    """`waiting` includes the time after preemptions."""
    num_steps: int
    duration_ns: int | None
    """None where the run has no clock."""
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to the request."""

    step: int
    sentence: Sentence
