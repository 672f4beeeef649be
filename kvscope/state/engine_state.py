"""The engine's state as a fold over its events: the one reducer of live view, replay, analysis and tests.

Holds no rule of scheduling. Where an event cannot be true of the state (a block is allocated that is not at the head of
the free queue), the events are damaged or incomplete and `StateError` says which one.

Token ids are not kept, only their number: a reader fetches them from the recording when a screen shows them.
Block hashes are kept as they are published, but not in checkpoints (`block_hashes` then lacks the older ones).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from kvscope import events as ev
from kvscope.errors import RecordingError
from kvscope.state import block_events
from kvscope.state.block_events import NULL_BLOCK
from kvscope.state.block_origins import BlockOrigins, Origin
from kvscope.state.free_queue import FreeQueue
from kvscope.state.request_state import RequestState, RequestStatus


class StateError(RecordingError):
    """An event contradicts the state before it."""


@dataclass(slots=True)
class StepTokens:
    """How a step's scheduled tokens divide."""

    prefill: int = 0
    decode: int = 0
    draft: int = 0

    @property
    def total(self) -> int:
        return self.prefill + self.decode + self.draft


@dataclass(slots=True)
class EngineState:
    """Queues, block tables, reference counts, free queue and cached blocks after some step's events."""

    config: ev.EngineConfigured | None = None
    step: int = -1
    token_budget: int = 0
    requests: dict[str, RequestState] = field(default_factory=dict)
    """The live ones, and those that ended in the current step."""
    waiting: list[str] = field(default_factory=list)
    """In queue order, head first."""
    running: list[str] = field(default_factory=list)
    """In admission order."""
    free_queue: FreeQueue = field(default_factory=FreeQueue)
    """Head (next to be taken) first."""
    ref_cnts: list[int] = field(default_factory=list)
    """By block id. Blocks with 0, but for the null block and those that are lost, stand in the free queue."""
    lost_blocks: set[int] = field(default_factory=set)
    """Nobody holds them, and they did not come back to the free queue: the engine, or its events, lost them."""
    cached_from: BlockOrigins = field(default_factory=BlockOrigins)
    """Each published block: the request that computed it, and its index in that request's table."""
    block_hashes: dict[int, int] = field(default_factory=dict)
    duplicate_groups: dict[int, dict[int, None]] = field(default_factory=dict)
    """Blocks published under a hash that another block had: each member to its group, first published first.

    A group stays one when it has shrunk to a single block (as vLLM's map does), and ends when it is empty."""
    num_shared_blocks: int = 0
    num_cached_free_blocks: int = 0
    """Free, but still hittable: lost when they are allocated."""
    step_tokens: StepTokens = field(default_factory=StepTokens)
    evicted_from: dict[int, Origin] = field(default_factory=dict)
    """Each block evicted in the current step: who had computed it, as in `cached_from` before."""
    ended_ids: list[str] = field(default_factory=list)
    """Requests that ended in the current step; forgotten when the next begins."""

    @property
    def num_usable_blocks(self) -> int:
        """The pool without the null block."""
        return max(len(self.ref_cnts) - 1, 0)

    @property
    def num_free_blocks(self) -> int:
        return len(self.free_queue)

    @property
    def num_live_blocks(self) -> int:
        return self.num_usable_blocks - len(self.free_queue)

    def is_free(self, block_id: int) -> bool:
        """True where the block stands in the free queue."""
        is_known = NULL_BLOCK < block_id < len(self.ref_cnts)
        return is_known and not self.ref_cnts[block_id] and block_id not in self.lost_blocks

    def begin_step(self, step: int) -> None:
        """Forgets what belonged to the step before. To be called before the step's first event."""
        for request_id in self.ended_ids:
            del self.requests[request_id]
        self.ended_ids.clear()
        self.step = step
        self.step_tokens = StepTokens()
        if self.evicted_from:
            self.evicted_from.clear()

    def apply_step(self, step: int, events: Iterable[ev.Event]) -> None:
        """Folds one whole step. Raises `StateError` where an event contradicts the state."""
        self.begin_step(step)
        self._apply_all(events)

    def apply(self, event: ev.Event) -> None:
        """Folds one event. Raises `StateError` where it contradicts the state."""
        self._apply_all((event,))

    def _apply_all(self, events: Iterable[ev.Event]) -> None:
        event: ev.Event | None = None
        try:
            for event in events:
                self._apply(event)
        except (KeyError, ValueError, IndexError, StopIteration) as error:
            raise StateError(
                f"step {self.step}: {type(event).__name__} does not fit the state before it ({error!r}); "
                "the recording is damaged or an event is missing"
            ) from error

    def _apply(self, event: ev.Event) -> None:
        match event:  # the frequent kinds first: cases are tried in order
            case ev.BlockAllocated():
                block_events.block_allocated(self, event)
            case ev.BlockCached():
                block_events.block_cached(self, event)
            case ev.BlockEvicted():
                block_events.forget_hashes(self, event.block_ids, self.evicted_from)
            case ev.TokensScheduled():
                self._tokens_scheduled(event)
            case ev.TokensSampled():
                self._tokens_sampled(event)
            case ev.StepStarted():
                self.token_budget = event.token_budget
            case ev.StepFinished() | ev.AdmissionEnded():
                pass
            case ev.BlockTouched():
                block_events.block_touched(self, event)
            case ev.BlockReleased():
                block_events.block_released(self, event)
            case ev.BlockUncached():
                block_events.forget_hashes(self, event.block_ids, {})
                block_events.recount_cached(self, event.request_id)
            case ev.RequestArrived():
                self._request_arrived(event)
            case ev.RequestAdmitted() | ev.RequestResumed():
                self._request_admitted(event)
            case ev.PrefixCacheHit():
                self.requests[event.request_id].num_own_hit_tokens = event.num_own_hit_tokens
            case ev.RequestPreempted():
                self._request_preempted(event)
            case ev.RequestFinished():
                request = self.requests[event.request_id]
                self.running.remove(event.request_id)
                self._end(request, "FINISHED", event.reason)
            case ev.RequestAborted():
                request = self.requests[event.request_id]
                (self.running if event.status == "RUNNING" else self.waiting).remove(event.request_id)
                self._end(request, "ABORTED", "abort")
            case ev.DraftsProposed():
                self.requests[event.request_id].draft_token_ids = event.draft_token_ids
            case ev.DraftsVerified():
                self.requests[event.request_id].num_computed_tokens -= event.num_rolled_back
            case ev.EngineConfigured():
                self._engine_configured(event)
            case (
                ev.PrefixLookedUp()
                | ev.AllocationFailed()
                | ev.RequestBlocked()
                | ev.RequestRejected()
                | ev.TokenTextRecorded()
                | ev.KVTransferStarted()
                | ev.KVTransferFinished()
                | ev.StepFailed()
            ):
                pass  # facts that change none of the books
            case _:
                assert_never(event)

    def _engine_configured(self, event: ev.EngineConfigured) -> None:
        self.config = event
        self.ref_cnts = [0] * event.num_gpu_blocks
        self.free_queue = FreeQueue(range(NULL_BLOCK + 1, event.num_gpu_blocks))
        self.cached_from = BlockOrigins.of_pool(event.num_gpu_blocks)

    def _request_arrived(self, event: ev.RequestArrived) -> None:
        if event.request_id in self.requests:
            raise ValueError(f"{event.request_id} is already there")
        self.requests[event.request_id] = RequestState(
            request_id=event.request_id,
            arrival_step=self.step,
            num_prompt_tokens=len(event.prompt_token_ids),
            num_tokens=len(event.prompt_token_ids),
            max_tokens=event.max_tokens,
            priority=event.priority,
            arrival_time=event.arrival_time,
            cache_salt=event.cache_salt,
            lora_name=event.lora_name,
            waiting_since_step=self.step,
        )
        self.waiting.insert(event.queue_position, event.request_id)

    def _request_admitted(self, event: ev.RequestAdmitted | ev.RequestResumed) -> None:
        request = self.requests[event.request_id]
        self.waiting.remove(event.request_id)
        self.running.append(event.request_id)
        request.status = "RUNNING"
        request.num_computed_tokens = event.num_hit_tokens
        request.num_hit_tokens = event.num_hit_tokens
        if event.num_hit_tokens == 0:
            request.num_own_hit_tokens = 0
        request.num_prefill_tokens = event.num_tokens
        request.admitted_step = self.step
        if request.first_admitted_step is None:
            request.first_admitted_step = self.step

    def _request_preempted(self, event: ev.RequestPreempted) -> None:
        request = self.requests[event.request_id]
        self.running.remove(event.request_id)
        self.waiting.insert(event.queue_position, event.request_id)
        request.status = "PREEMPTED"
        request.num_computed_tokens = 0
        request.draft_token_ids = ()
        request.num_preemptions += 1
        request.num_lost_tokens += event.num_lost_tokens
        request.waiting_since_step = self.step

    def _end(self, request: RequestState, status: RequestStatus, reason: str) -> None:
        request.status = status
        request.finish_reason = reason
        request.finished_step = self.step
        request.draft_token_ids = ()
        self.ended_ids.append(request.request_id)

    def _tokens_scheduled(self, event: ev.TokensScheduled) -> None:
        requests, tokens = self.requests, self.step_tokens
        prefill = 0
        for request, num_tokens in zip(map(requests.__getitem__, event.request_ids), event.num_tokens, strict=True):
            num_computed = request.num_computed_tokens
            if num_computed < request.num_prefill_tokens:
                prefill += num_tokens
            request.num_computed_tokens = num_computed + num_tokens
            if request.draft_token_ids:
                request.draft_token_ids = ()
        decode = sum(event.num_tokens) - prefill
        draft = sum(map(len, event.draft_token_ids.values()))
        # Placeholder drafts that pad an admission of one token count as drafts, not as prefill.
        padded = sum(
            len(drafts)
            for request_id, drafts in event.draft_token_ids.items()
            if requests[request_id].num_computed_tokens - len(drafts) <= requests[request_id].num_prefill_tokens
        )
        tokens.prefill, tokens.decode, tokens.draft = prefill - padded, decode - (draft - padded), draft

    def _tokens_sampled(self, event: ev.TokensSampled) -> None:
        requests, step = map(self.requests.__getitem__, event.request_ids), self.step
        counts: Sequence[int] = event.num_tokens if event.num_tokens is not None else (1,) * len(event.request_ids)
        for request, count in zip(requests, counts, strict=True):
            request.num_tokens += count
            if request.first_token_step is None and count:
                request.first_token_step = step

    def copy(self) -> EngineState:
        """Returns a copy that shares nothing mutable with this state."""
        groups: dict[int, dict[int, None]] = {}
        for group in {id(group): group for group in self.duplicate_groups.values()}.values():
            new = dict(group)
            groups.update(dict.fromkeys(new, new))
        return dataclasses.replace(
            self,
            requests={request_id: request.copy() for request_id, request in self.requests.items()},
            waiting=list(self.waiting),
            running=list(self.running),
            free_queue=self.free_queue.copy(),
            ref_cnts=list(self.ref_cnts),
            lost_blocks=set(self.lost_blocks),
            cached_from=self.cached_from.copy(),
            block_hashes=dict(self.block_hashes),
            duplicate_groups=groups,
            step_tokens=dataclasses.replace(self.step_tokens),
            evicted_from=dict(self.evicted_from),
            ended_ids=list(self.ended_ids),
        )
