"""How each kind of event lies in a row of the table `events`: the one description that codec and views share.

A row is `(step, seq, kind, request, block, a, b, data, hashes)`:

- `kind`: the number of the event's kind, see `KIND_NAMES`;
- `request`: `requests.number` of the event's `request_id`;
- `block`: the block id, where the event is about exactly one;
- `a`, `b`: two figures; `data`: packed numbers (see `packing`), or text; `hashes`: eight bytes for each block.

Names of tests and states are stored as their index in the tuples below, which only ever grow at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvscope import events as ev

QUEUE_TESTS = (
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
)
PHASES = ("running", "waiting")
STATUSES = ("WAITING", "RUNNING", "PREEMPTED")
FINISH_REASONS = ("stop", "length", "abort", "error")
UNCACHED_REASONS = ("preempted", "step_failed", "load_failed")
DIRECTIONS = ("load", "send")
FLAG = (False, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the fields of one kind of event lie. A field that has `codes` is stored as its index in them."""

    a: str | None = None
    b: str | None = None
    packed: tuple[str, ...] = ()
    """Single figures at the head of `data`."""
    numbers: str | None = None
    """A list behind them."""
    blocks: str | None = None
    """A list of block ids: in `block` where it is exactly one, else in `data`."""
    codes: Mapping[str, tuple[str | bool, ...]] | None = None
    has_request: bool = True

    def codes_of(self, field: str) -> tuple[str | bool, ...] | None:
        """Returns what the field's numbers stand for, None for a plain number."""
        return (self.codes or {}).get(field)


BLOCK_STEPS = 0
"""Several events of one block each, see `rows.encode_block_steps`: what decoding requests do, most of all rows."""
ALLOCATED, RECYCLED, CACHED = 0, 1, 2
"""How the entries of such a row begin; from CACHED on it is a `BlockCached` whose first index is so much less."""

BLOCK_ALLOCATED, BLOCK_CACHED = 1, 2
TOKENS_SCHEDULED, TOKENS_SAMPLED, STEP_STARTED, STEP_FINISHED, ADMISSION_ENDED = 3, 4, 5, 6, 7
LAST_FREQUENT_KIND = ADMISSION_ENDED
"""Kinds beyond this one have an index: they are few in a steady run."""
REQUEST_PREEMPTED = 19

KIND_OF: dict[type[ev.Event], int] = {
    ev.BlockCached: BLOCK_CACHED,
    ev.BlockAllocated: BLOCK_ALLOCATED,
    ev.TokensScheduled: TOKENS_SCHEDULED,
    ev.TokensSampled: TOKENS_SAMPLED,
    ev.StepStarted: STEP_STARTED,
    ev.StepFinished: STEP_FINISHED,
    ev.AdmissionEnded: ADMISSION_ENDED,
    ev.BlockEvicted: 8,
    ev.BlockTouched: 9,
    ev.BlockReleased: 10,
    ev.BlockUncached: 11,
    ev.PrefixLookedUp: 12,
    ev.PrefixCacheHit: 13,
    ev.AllocationFailed: 14,
    ev.RequestBlocked: 15,
    ev.RequestArrived: 16,
    ev.RequestAdmitted: 17,
    ev.RequestResumed: 18,
    ev.RequestPreempted: REQUEST_PREEMPTED,
    ev.RequestFinished: 20,
    ev.RequestAborted: 21,
    ev.RequestRejected: 22,
    ev.DraftsProposed: 23,
    ev.DraftsVerified: 24,
    ev.KVTransferStarted: 25,
    ev.KVTransferFinished: 26,
    ev.StepFailed: 27,
    ev.EngineConfigured: 28,
    ev.TokenTextRecorded: 29,
}
EVENT_OF: dict[int, type[ev.Event]] = {kind: event for event, kind in KIND_OF.items()}
KIND_NAMES: dict[int, str] = {kind: event.__name__ for kind, event in EVENT_OF.items()} | {
    BLOCK_STEPS: "BlockAllocated, BlockEvicted, BlockCached"
}

LAYOUTS: dict[type[ev.Event], Layout] = {
    ev.BlockAllocated: Layout(blocks="block_ids"),
    ev.BlockUncached: Layout(a="reason", blocks="block_ids", codes={"reason": UNCACHED_REASONS}),
    ev.PrefixLookedUp: Layout(a="num_hit_tokens", b="num_free_hit_blocks", blocks="block_ids"),
    ev.PrefixCacheHit: Layout(a="num_hit_tokens", b="num_own_hit_tokens", blocks="block_ids"),
    ev.AllocationFailed: Layout(
        a="need_step",
        b="num_free_blocks",
        packed=("phase", "reason", "need_full", "watermark_blocks", "num_tokens"),
        codes={"phase": PHASES, "reason": QUEUE_TESTS},
    ),
    ev.RequestBlocked: Layout(a="need", b="have", packed=("reason", "watermark_blocks"), codes={"reason": QUEUE_TESTS}),
    ev.AdmissionEnded: Layout(
        a="num_waiting",
        b="token_budget_left",
        packed=("reason",),
        codes={"reason": QUEUE_TESTS},
        has_request=False,
    ),
    ev.RequestAdmitted: Layout(a="num_tokens", b="num_hit_tokens", packed=("num_scheduled_tokens",)),
    ev.RequestResumed: Layout(a="num_tokens", b="num_hit_tokens", packed=("num_scheduled_tokens",)),
    ev.RequestPreempted: Layout(
        a="beneficiary_id",
        b="num_lost_tokens",
        packed=("num_freed_blocks", "num_table_blocks", "num_returned_tokens", "queue_position"),
    ),
    ev.RequestAborted: Layout(a="status", b="during_execution", codes={"status": STATUSES, "during_execution": FLAG}),
    ev.DraftsProposed: Layout(numbers="draft_token_ids"),
    ev.DraftsVerified: Layout(
        a="num_drafts",
        b="num_accepted",
        packed=("num_rolled_back", "num_discarded"),
        numbers="discarded_token_ids",
    ),
    ev.KVTransferStarted: Layout(a="direction", b="num_tokens", blocks="block_ids", codes={"direction": DIRECTIONS}),
    ev.KVTransferFinished: Layout(a="direction", blocks="failed_block_ids", codes={"direction": DIRECTIONS}),
}
"""The kinds whose codec follows from the layout alone; the others are written out in `rows`."""
