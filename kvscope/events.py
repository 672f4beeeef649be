"""Every fact that the engine writes down, as plain frozen records.

An event says what happened, in the past tense, with the figures that decided it. It never holds a rule: a reader that
wants the state folds the events (see `kvscope.state`), and needs to know nothing about scheduling to do so.

One step of the engine is one list of events in this order:

1. `RequestArrived`, `RequestRejected`, `RequestAborted` (+ `BlockReleased`): what came in before the step;
2. `StepStarted`, then what `schedule()` decided, in the order in which it decided, closed by `AdmissionEnded` and
   `TokensScheduled`;
3. `RequestAborted` with `during_execution` (+ `BlockReleased`), `TokensSampled`, `DraftsVerified`, `RequestFinished`
   (+ `BlockReleased`), `DraftsProposed`;
4. `StepFinished`, or `StepFailed` where the step raised.

`EngineConfigured` comes once, at the head of step 0's list; `TokenTextRecorded` may come anywhere.

Block ids are physical, block 0 is the null block. Sequences are in the order in which things happened. Knows nothing of
files, screens, torch or policies.

`gc=False`: events never refer to what refers to them, and a reader makes thousands at once; looked through by the
garbage collector they cost a third more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

QueueTest = Literal[
    "preempted",
    "budget",
    "empty",
    "max_num_seqs",
    "spec_pad_budget",
    "chunked_prefill_off",
    "full_isl",
    "full_isl_watermark",
    "blocks",
    "watermark",
    "policy",
    "other",
]
"""Why the waiting loop stopped, by the name of the test that stopped it (`waiting_stop` of the golden runs)."""

FinishReason = Literal["stop", "length", "abort", "error"]


class EngineConfigured(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The settings of the run. `settings` holds every scheduler setting by its vLLM name."""

    model: str
    device: str
    dtype: str
    settings: dict[str, Any]
    num_gpu_blocks: int
    block_size: int
    watermark_blocks: int
    kv_bytes_per_token: int = 0
    started_at: str = ""
    """Wall clock at the engine's start, ISO 8601 with offset; empty for a scripted run."""
    engine_version: str = ""
    eos_token_ids: tuple[int, ...] = ()
    kernels: str = ""
    """Whose kernels computed the steps: torch, native, triton, or triton+graphs; empty where nobody said."""


class TokenTextRecorded(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The bytes that tokens stand for, once for each token id, so that a reader needs no tokenizer.

    Bytes, not text: a character may be split over two tokens.
    """

    token_ids: tuple[int, ...]
    token_bytes: tuple[bytes, ...]


class RequestArrived(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """A request entered the waiting queue at `queue_position` (0 is the head)."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    arrival_time: float
    """Seconds, on the clock that the priority policy compares."""
    queue_position: int
    priority: int = 0
    cache_salt: str | None = None
    lora_name: str | None = None
    """The adapter that it asked for: like the salt it keeps its blocks to itself and its like."""
    prompt: str | None = None
    """The text as the user gave it, before any template."""
    sampling: dict[str, Any] = {}
    """The sampling settings that differ from their defaults."""
    stop_token_ids: tuple[int, ...] = ()
    arrival_ns: int = 0
    """Engine clock at the submission; like all `*_ns` stamps, since the engine's start."""
    template_ns: int = 0
    tokenize_ns: int = 0


class RequestRejected(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """A request was refused before it reached a queue: `limit` of the setting `reason` names, `have` what it asked."""

    request_id: str
    reason: str
    have: int
    limit: int
    message: str = ""


class RequestAborted(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """A request was taken out of its queue. Its blocks follow in a `BlockReleased`."""

    request_id: str
    status: Literal["WAITING", "RUNNING", "PREEMPTED"]
    """What it was at that moment."""
    during_execution: bool = False


class StepStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """`schedule()` began, after the arrivals and aborts of the step."""

    step: int
    token_budget: int
    time_ns: int = 0


class PrefixLookedUp(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The head of the waiting queue was looked up in the prefix cache; also when it was refused afterwards."""

    request_id: str
    num_hit_tokens: int
    block_ids: tuple[int, ...]
    num_free_hit_blocks: int
    """How many of `block_ids` lay in the free queue, and so cost a free block each."""


class AllocationFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Blocks were asked for and not given; nothing changed. All figures in blocks."""

    request_id: str
    phase: Literal["running", "waiting"]
    reason: Literal["blocks", "watermark", "full_isl", "full_isl_watermark"]
    need_step: int
    """Blocks that this step's tokens need."""
    need_full: int
    """Blocks that all its tokens need, drafts and lookahead left out."""
    num_free_blocks: int
    watermark_blocks: int
    """The watermark as it was applied to this request: 0 where it does not apply."""
    num_tokens: int = 0
    """How many tokens it was to be given in this step."""


class RequestBlocked(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The verdict on the head of the waiting queue: the first test that failed.

    Units follow `reason`: tokens for "budget", "spec_pad_budget" and "chunked_prefill_off", sequences for
    "max_num_seqs", blocks otherwise; for "preempted" `need` and `have` are 0 and the number of preemptions of the step.
    """

    request_id: str
    reason: QueueTest
    need: int
    have: int
    watermark_blocks: int = 0


class AdmissionEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The waiting loop stopped (or never ran, for "preempted")."""

    reason: QueueTest
    num_waiting: int
    token_budget_left: int


class PrefixCacheHit(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """An admitted request took over cached blocks (at least one)."""

    request_id: str
    num_hit_tokens: int
    num_own_hit_tokens: int
    """Of these, tokens in blocks that the request itself had computed (before it was preempted)."""
    block_ids: tuple[int, ...]


class RequestAdmitted(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """A request left the head of the waiting queue for the end of the running list, for the first time."""

    request_id: str
    num_tokens: int
    """All its tokens at this moment; what prefix cache statistics count as queried."""
    num_hit_tokens: int
    num_scheduled_tokens: int


class RequestResumed(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """As `RequestAdmitted`, for a request that had been preempted."""

    request_id: str
    num_tokens: int
    num_hit_tokens: int
    num_scheduled_tokens: int


class RequestPreempted(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """A running request was put back into the waiting queue. Its blocks follow in a `BlockReleased`."""

    request_id: str
    beneficiary_id: str
    """Whose allocation had failed; the request's own id where it preempted itself."""
    num_freed_blocks: int
    """Blocks that went to the free queue: those of its table that nobody else holds."""
    num_table_blocks: int
    num_lost_tokens: int
    """Computed tokens thrown away."""
    num_returned_tokens: int
    """Tokens of this step's budget given back, where it had been scheduled already (priority policy)."""
    queue_position: int


class BlockAllocated(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Blocks were taken from the head of the free queue, in order, and appended to the request's block table."""

    request_id: str
    block_ids: tuple[int, ...]


class BlockTouched(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Cached blocks became the head of a request's block table; those with `ref_cnts` 1 left the free queue."""

    request_id: str
    block_ids: tuple[int, ...]
    ref_cnts: tuple[int, ...]
    """Reference counts after."""


class BlockReleased(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """A request's whole block table was given back."""

    request_id: str
    freed_to_head: tuple[int, ...]
    """Now at the head of the free queue, in this order."""
    freed_to_tail: tuple[int, ...]
    """Now at the tail of the free queue, in this order."""
    still_held: tuple[int, ...]
    """Blocks that other requests hold; each lost one reference."""


class BlockCached(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Full blocks of a request were published for prefix hits.

    They are `block_table[first_index : first_index + len(block_ids)]`; each one's parent is the block before it.
    """

    request_id: str
    first_index: int
    block_ids: tuple[int, ...]
    block_hashes: tuple[int, ...]
    """The first eight bytes of each chain hash, as an unsigned number."""
    duplicate_of: tuple[int, ...] = ()
    """For each block the first-published block that already had this hash, 0 where none had; empty if all are 0."""


class BlockEvicted(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Free blocks lost their hash: always because they are about to be allocated to `request_id`."""

    request_id: str
    block_ids: tuple[int, ...]
    block_hashes: tuple[int, ...]


class BlockUncached(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Published blocks were taken back because their tokens will not be computed."""

    request_id: str
    block_ids: tuple[int, ...]
    reason: Literal["preempted", "step_failed", "load_failed"]


class TokensScheduled(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The budget split, in scheduling order; each request's computed tokens were advanced by its share."""

    request_ids: tuple[str, ...]
    num_tokens: tuple[int, ...]
    """Tokens for each request, drafts included."""
    draft_token_ids: dict[str, tuple[int, ...]] = {}
    """The scheduled drafts, of the requests that have any."""


class TokensSampled(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Tokens were appended to requests, in scheduling order."""

    request_ids: tuple[str, ...]
    token_ids: tuple[int, ...]
    """Of all requests, one after another."""
    num_tokens: tuple[int, ...] | None = None
    """How many belong to each request; None where it is one each."""


class DraftsProposed(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The drafter's tokens were stored with a request, to be verified in its next step."""

    request_id: str
    draft_token_ids: tuple[int, ...]


class DraftsVerified(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Scheduled drafts were compared with the model's tokens; `num_rolled_back` computed tokens were taken back."""

    request_id: str
    num_drafts: int
    num_accepted: int
    num_rolled_back: int
    num_discarded: int = 0
    """Sampled tokens dropped because the request stopped before them."""
    discarded_token_ids: tuple[int, ...] = ()


class RequestFinished(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """A request ended by itself. Its blocks follow in a `BlockReleased`."""

    request_id: str
    reason: FinishReason
    num_output_tokens: int
    stop: str | None = None
    """The stop string, or the stop token's id as text, that ended it."""


class KVTransferStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Blocks of a request began to be loaded from or sent to another engine."""

    request_id: str
    direction: Literal["load", "send"]
    block_ids: tuple[int, ...]
    num_tokens: int


class KVTransferFinished(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """A transfer ended; `failed_block_ids` were not loaded."""

    request_id: str
    direction: Literal["load", "send"]
    failed_block_ids: tuple[int, ...] = ()


class StepFinished(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The step is complete. Durations in ns."""

    schedule_ns: int = 0
    forward_ns: int = 0
    sample_ns: int = 0
    update_ns: int = 0
    record_ns: int = 0
    """What handing the step before this one to the recorder took."""


class StepFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """The step raised in `phase`; the engine stopped. What it had decided stays in the events before this one."""

    phase: Literal["schedule", "forward", "sample", "update"]
    error_type: str
    message: str
    traceback: str = ""


Event = (
    EngineConfigured
    | TokenTextRecorded
    | RequestArrived
    | RequestRejected
    | RequestAborted
    | StepStarted
    | PrefixLookedUp
    | AllocationFailed
    | RequestBlocked
    | AdmissionEnded
    | PrefixCacheHit
    | RequestAdmitted
    | RequestResumed
    | RequestPreempted
    | BlockAllocated
    | BlockTouched
    | BlockReleased
    | BlockCached
    | BlockEvicted
    | BlockUncached
    | TokensScheduled
    | TokensSampled
    | DraftsProposed
    | DraftsVerified
    | RequestFinished
    | KVTransferStarted
    | KVTransferFinished
    | StepFinished
    | StepFailed
)


class EventSink(Protocol):
    """Where an engine's events go, one whole step at a time."""

    is_recording: bool
    """False: the engine builds no events at all."""

    def write_step(self, step: int, events: Sequence[Event]) -> None:
        """Takes over the events of a step that is complete; returns at once. Raises what an earlier write raised."""
        ...


class NullSink:
    """Records nothing and costs nothing."""

    is_recording = False

    def write_step(self, step: int, events: Sequence[Event]) -> None:
        """Drops the events."""
