"""What must hold in every step of every recording, each rule by itself.

An invariant looks at the books before an event and at the event, or at the books after a whole step, and yields a
sentence with the figures for each fault it finds. Its name is its function's, its promise the docstring's first line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kvscope import events as ev
from kvscope.analysis.check_books import Books
from kvscope.engine.scheduling import hashing
from kvscope.state import NULL_BLOCK

Finder = Callable[[Books, Any], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Invariant:
    """One rule, and the events before which it is looked at; without events, after each step."""

    name: str
    promise: str
    event_types: tuple[type, ...]
    find: Finder
    is_warning: bool = False
    """A rule that vLLM itself breaks in a known case: said, but no fault of the run."""


INVARIANTS: list[Invariant] = []


def _before(*event_types: type, is_warning: bool = False) -> Callable[[Finder], Finder]:
    def register(find: Finder) -> Finder:
        promise = inspect.getdoc(find) or ""
        INVARIANTS.append(Invariant(find.__name__, promise, event_types, find, is_warning))
        return find

    return register


def _after_step(find: Callable[[Books], Iterator[str]]) -> Callable[[Books], Iterator[str]]:
    INVARIANTS.append(Invariant(find.__name__, inspect.getdoc(find) or "", (), lambda books, _: find(books)))
    return find


# --- blocks -----------------------------------------------------------------------------------------------------------


@_before(ev.BlockAllocated)
def null_block_is_never_handed_out(books: Books, event: ev.BlockAllocated) -> Iterator[str]:
    """Block 0 is in no block table."""
    if NULL_BLOCK in event.block_ids:
        yield f"the null block is allocated to {event.request_id}"


@_before(ev.BlockAllocated)
def blocks_come_from_the_head_of_the_free_queue(books: Books, event: ev.BlockAllocated) -> Iterator[str]:
    """Blocks are taken from the head of the free queue, in order."""
    head = [block_id for block_id, _ in zip(books.state.free_queue, event.block_ids, strict=False)]
    if list(event.block_ids) != head:
        yield f"{event.request_id} takes blocks {list(event.block_ids)}, the free queue begins with {head}"


@_before(ev.BlockAllocated)
def allocated_blocks_have_no_hash(books: Books, event: ev.BlockAllocated) -> Iterator[str]:
    """A block's hash is evicted before the block is taken."""
    for block_id in event.block_ids:
        if block_id in books.contents:
            yield f"block {block_id} is allocated to {event.request_id}, but can still be hit"


@_before(ev.BlockReleased)
def release_keeps_the_order(books: Books, event: ev.BlockReleased) -> Iterator[str]:
    """A table is given back from its end: un-hashed blocks to the head of the free queue, hashed ones to the tail."""
    head: list[int] = []
    tail: list[int] = []
    held: list[int] = []
    for block_id in reversed(books.requests[event.request_id].block_table):
        is_shared = books.num_holders[block_id] > 1
        (held if is_shared else tail if block_id in books.contents else head).append(block_id)
    for name, have, due in (
        ("the head", event.freed_to_head, head),
        ("the tail", event.freed_to_tail, tail),
        ("nowhere", event.still_held, held),
    ):
        if list(have) != due:
            yield f"of {event.request_id}'s table blocks {list(have)} go to {name}, not {due}"


@_after_step
def blocks_are_free_or_referenced(books: Books) -> Iterator[str]:
    """A block is free or in a block table, never both, never lost."""
    state = books.state
    for block_id in sorted(books.step.changed_block_ids):
        is_free, num_holders = state.is_free(block_id), books.num_holders[block_id]
        if is_free and num_holders:
            yield f"block {block_id} is free, but {num_holders} block tables hold it"
        elif not is_free and not num_holders:
            yield f"block {block_id} is lost: not free, and in no block table"


@_after_step
def reference_counts_match_the_tables(books: Books) -> Iterator[str]:
    """A block's reference count is the number of block tables that hold it."""
    for block_id in sorted(books.step.changed_block_ids):
        ref_cnt, num_holders = books.state.ref_cnts[block_id], books.num_holders[block_id]
        if ref_cnt != num_holders:
            yield f"block {block_id} has reference count {ref_cnt}, and {num_holders} block tables hold it"


# --- prefix cache -----------------------------------------------------------------------------------------------------


@_before(ev.PrefixLookedUp, ev.PrefixCacheHit)
def hits_are_whole_blocks_and_leave_a_token(
    books: Books, event: ev.PrefixLookedUp | ev.PrefixCacheHit
) -> Iterator[str]:
    """A hit is a multiple of the block size and at most all tokens but one."""
    num_tokens, size = len(books.requests[event.request_id].token_ids), books.block_size
    if event.num_hit_tokens != len(event.block_ids) * size:
        yield f"{event.request_id} hits {event.num_hit_tokens} tokens in {len(event.block_ids)} blocks of {size}"
    if event.num_hit_tokens > num_tokens - 1:
        yield f"{event.request_id} hits {event.num_hit_tokens} of its {num_tokens} tokens: none is left to compute"


@_before(ev.PrefixLookedUp, ev.PrefixCacheHit)
def hit_blocks_hold_the_requests_tokens(books: Books, event: ev.PrefixLookedUp | ev.PrefixCacheHit) -> Iterator[str]:
    """A hit block was computed from the very tokens and extra keys of the request."""
    wanted = books.prefix_ids(event.request_id, len(event.block_ids))
    for index, block_id in enumerate(event.block_ids):
        content = books.contents.get(block_id)
        if content is None:
            yield f"{event.request_id} hits block {block_id}, which is not published"
        elif index >= len(wanted) or content != wanted[index]:
            yield f"{event.request_id} hits block {block_id} as its block {index}, but other tokens or keys are in it"


@_before(ev.BlockCached)
def hash_chain_is_right(books: Books, event: ev.BlockCached) -> Iterator[str]:
    """A published block's hash follows from its request's tokens and extra keys, and the block is full."""
    end = event.first_index + len(event.block_ids)
    wanted = books.block_hashes(event.request_id, end)[event.first_index :]
    if len(wanted) < len(event.block_ids):
        num_tokens = len(books.requests[event.request_id].token_ids)
        yield f"{event.request_id} publishes {end} blocks of {books.block_size}, but has {num_tokens} decided tokens"
    for block_id, have, block_hash in zip(event.block_ids, event.block_hashes, wanted, strict=False):
        due = hashing.short_hash(block_hash)
        if have != due:
            yield f"block {block_id} of {event.request_id} has hash {have:016x}, not {due:016x}"


@_before(ev.BlockEvicted)
def evicted_blocks_are_free_and_cached(books: Books, event: ev.BlockEvicted) -> Iterator[str]:
    """Only a free block that can be hit is evicted, and with the hash that it has."""
    for block_id, block_hash in zip(event.block_ids, event.block_hashes, strict=False):
        if not books.state.is_free(block_id) or block_id not in books.contents:
            yield f"block {block_id} is evicted, but it is not a free block with a hash"
        elif books.state.block_hashes.get(block_id, block_hash) != block_hash:
            yield f"block {block_id} is evicted with hash {block_hash:016x}, which it does not have"


@_after_step
def published_blocks_are_computed(books: Books) -> Iterator[str]:
    """What is published is computed by the end of the step."""
    step = books.step
    for block_id, (request_id, num_tokens) in step.published.items():
        if step.failed is not None and step.failed.phase != "update":
            yield f"block {block_id} of {request_id} stays published, but the step failed before it was computed"
        request = books.state.requests[request_id]
        num_computed = request.num_computed_tokens
        if request.status == "ABORTED":  # its counter stands, and its blocks were computed: it was aborted afterwards
            num_computed = max(num_computed, num_tokens if request_id in step.scheduled else 0)
        if num_computed < num_tokens:
            yield (
                f"block {block_id} is published for tokens up to {num_tokens} of {request_id}, "
                f"of which {num_computed} are computed"
            )


@_before(ev.KVTransferFinished, is_warning=True)
def failed_loads_are_not_published(books: Books, event: ev.KVTransferFinished) -> Iterator[str]:
    """A block that was not loaded cannot be hit. vLLM breaks it: a failed synchronous load stays published."""
    for block_id in event.failed_block_ids:
        if block_id in books.contents:
            yield f"block {block_id} of {event.request_id} was not loaded, but can be hit"


# --- queues and budget ------------------------------------------------------------------------------------------------


@_before(ev.TokensScheduled)
def scheduled_tokens_fit_the_budget(books: Books, event: ev.TokensScheduled) -> Iterator[str]:
    """A step's tokens are at most its budget, what it says is left is left, and each request gets at least one."""
    total, budget = sum(event.num_tokens), books.step.token_budget
    if total > budget:
        yield f"{total} tokens are scheduled on a budget of {budget}"
    left = books.step.budget_left
    if left is not None and left != budget - total:
        yield f"{total} tokens of {budget} are scheduled, but {left} are said to be left"
    for request_id, num_tokens in zip(event.request_ids, event.num_tokens, strict=True):
        if num_tokens < 1:
            yield f"{request_id} is scheduled with {num_tokens} tokens"


@_before(ev.TokensScheduled)
def only_running_requests_are_scheduled(books: Books, event: ev.TokensScheduled) -> Iterator[str]:
    """Who is scheduled runs, and is scheduled once."""
    for request_id in event.request_ids:
        request = books.state.requests.get(request_id)
        if request is None or request.status != "RUNNING":
            yield f"{request_id} is scheduled, but it is {request.status if request is not None else 'unknown'}"
    if len(set(event.request_ids)) != len(event.request_ids):
        yield "a request is scheduled twice"


@_before(ev.RequestAdmitted, ev.RequestResumed)
def preempting_steps_admit_nobody(books: Books, event: ev.RequestAdmitted | ev.RequestResumed) -> Iterator[str]:
    """A step that preempted admits nobody."""
    if books.step.preempted_ids:
        yield f"{event.request_id} is admitted in a step that preempted {', '.join(books.step.preempted_ids)}"


@_before(ev.RequestAdmitted, ev.RequestResumed)
def only_the_head_is_admitted(books: Books, event: ev.RequestAdmitted | ev.RequestResumed) -> Iterator[str]:
    """Only the head of the waiting queue is admitted."""
    waiting = books.state.waiting
    if not waiting or waiting[0] != event.request_id:
        yield f"{event.request_id} is admitted, but the head of the queue is {waiting[0] if waiting else 'nobody'}"


@_after_step
def running_is_at_most_max_num_seqs(books: Books) -> Iterator[str]:
    """At most max_num_seqs requests run."""
    config = books.state.config
    limit = config.settings.get("max_num_seqs") if config is not None else None
    if limit is not None and len(books.state.running) > limit:
        yield f"{len(books.state.running)} requests run, max_num_seqs is {limit}"


@_before(ev.AllocationFailed)
def failed_allocations_had_too_few_blocks(books: Books, event: ev.AllocationFailed) -> Iterator[str]:
    """An allocation fails on the figures that it names: need and watermark exceed what is free."""
    if event.num_free_blocks != books.state.num_free_blocks:
        yield f"{event.num_free_blocks} blocks are said to be free, {books.state.num_free_blocks} are"
    need = event.need_full if event.reason.startswith("full") else event.need_step
    if need + event.watermark_blocks <= event.num_free_blocks:
        yield f"{event.request_id} is refused {need}+{event.watermark_blocks} blocks of {event.num_free_blocks} free"


# --- requests ---------------------------------------------------------------------------------------------------------


@_after_step
def computed_tokens_exist(books: Books) -> Iterator[str]:
    """No more tokens are computed than exist; a token that was just sampled is not computed yet."""
    state = books.state
    for request_id in books.step.scheduled:
        request = state.requests[request_id]
        # Drafts of a request that the step did not come to verify count as computed until it ends.
        is_open = books.step.failed is not None or request.status == "ABORTED"
        limit = request.num_tokens + books.step.num_discarded.get(request_id, 0)
        limit += books.step.num_drafts.get(request_id, 0) if is_open else 0
        limit -= request_id in books.step.sampled_ids
        if not 0 <= request.num_computed_tokens <= limit:
            yield f"{request_id} has {request.num_computed_tokens} computed tokens of {limit}"


@_before(ev.TokensSampled)
def only_complete_requests_sample(books: Books, event: ev.TokensSampled) -> Iterator[str]:
    """Who samples was scheduled in this step, and all its tokens are computed."""
    for request_id in event.request_ids:
        request = books.state.requests[request_id]
        if request_id not in books.step.scheduled:
            yield f"{request_id} samples without having been scheduled"
        elif request.num_computed_tokens < request.num_tokens:
            yield f"{request_id} samples with {request.num_computed_tokens} of {request.num_tokens} tokens computed"


@_before(ev.DraftsVerified)
def drafts_are_accepted_or_rolled_back(books: Books, event: ev.DraftsVerified) -> Iterator[str]:
    """Every scheduled draft is accepted or rolled back."""
    scheduled = books.step.num_drafts.get(event.request_id, 0)
    if event.num_drafts != scheduled or event.num_accepted + event.num_rolled_back != scheduled:
        yield (
            f"of {event.request_id}'s {scheduled} scheduled drafts {event.num_accepted} are accepted and "
            f"{event.num_rolled_back} rolled back"
        )


@_after_step
def tokens_are_prompt_and_sampled(books: Books) -> Iterator[str]:
    """A request's tokens are its prompt and what it sampled."""
    for request_id in books.step.scheduled:
        have, due = books.state.requests[request_id].num_tokens, len(books.requests[request_id].token_ids)
        if have != due:
            yield f"{request_id} has {have} tokens, its prompt and sampled tokens are {due}"


@_before(ev.RequestFinished)
def finished_requests_count_their_tokens(books: Books, event: ev.RequestFinished) -> Iterator[str]:
    """A finished request's output is what it sampled, and no longer than it asked for."""
    request = books.requests[event.request_id]
    if event.num_output_tokens != request.num_output_tokens:
        yield f"{event.request_id} ends with {event.num_output_tokens} tokens, {request.num_output_tokens} were sampled"
    if event.num_output_tokens > request.max_tokens:
        yield f"{event.request_id} ends with {event.num_output_tokens} tokens, max_tokens is {request.max_tokens}"


@_after_step
def ended_requests_own_nothing(books: Books) -> Iterator[str]:
    """A request that has ended holds no block and stands in no queue."""
    state = books.state
    for request_id in state.ended_ids:
        num_blocks = len(books.requests[request_id].block_table)
        if num_blocks:
            yield f"{request_id} has ended and holds {num_blocks} blocks"
        if request_id in state.running or request_id in state.waiting:
            yield f"{request_id} has ended and stands in a queue"


@_after_step
def block_tables_hold_the_computed_tokens(books: Books) -> Iterator[str]:
    """A running request's table has room for every token that is computed, and is the one that the events built."""
    step, state = books.step, books.state
    for request_id in step.changed_request_ids:
        have, due = state.requests[request_id].block_ids, books.requests[request_id].block_table
        if have != due:
            yield f"{request_id} has the block table {have}, its events give {due}"
    for request_id in step.scheduled.keys() | step.changed_request_ids:
        request = state.requests[request_id]
        num_slots = len(books.requests[request_id].block_table) * books.block_size
        if request.num_computed_tokens > num_slots and request.status == "RUNNING":
            num_blocks = num_slots // books.block_size
            yield f"{request_id} has {request.num_computed_tokens} computed tokens in {num_blocks} blocks"
