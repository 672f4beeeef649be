"""The engine's state as a fold over its events: the one reducer of live view, replay, analysis and tests.

Holds no rule of scheduling. Where an event cannot be true of the state (a block is allocated that is not at the head of
the free queue), the events are damaged or incomplete and `StateError` says which one.

Token ids are not kept, only their number: a reader fetches them from the recording when a screen shows them.
Block hashes are kept as they are published, but not in checkpoints (`block_hashes` then lacks the older ones).
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, assert_never

from kvscope import events as ev
from kvscope.errors import RecordingError

RequestStatus = Literal["WAITING", "RUNNING", "PREEMPTED", "FINISHED", "ABORTED"]

NULL_BLOCK = 0


class StateError(RecordingError):
    """An event contradicts the state before it."""


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
        """Returns a copy that shares nothing mutable with this one."""
        copy = RequestState(*_request_fields(self))
        copy.block_ids = self.block_ids.copy()
        return copy


_request_fields = attrgetter(*(each.name for each in dataclasses.fields(RequestState)))


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
    free_queue: OrderedDict[int, None] = field(default_factory=OrderedDict)
    """Head (next to be taken) first."""
    ref_cnts: list[int] = field(default_factory=list)
    """By block id."""
    cached_from: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Each published block: the request that computed it, and its index in that request's table."""
    block_hashes: dict[int, int] = field(default_factory=dict)
    duplicate_groups: dict[int, dict[int, None]] = field(default_factory=dict)
    """Blocks published under a hash that another block had: each member to its group, first published first.

    A group stays one when it has shrunk to a single block (as vLLM's map does), and ends when it is empty."""
    num_shared_blocks: int = 0
    num_cached_free_blocks: int = 0
    """Free, but still hittable: lost when they are allocated."""
    step_tokens: StepTokens = field(default_factory=StepTokens)
    evicted_from: dict[int, tuple[str, int]] = field(default_factory=dict)
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
        for event in events:
            self.apply(event)

    def apply(self, event: ev.Event) -> None:
        """Folds one event. Raises `StateError` where it contradicts the state."""
        try:
            self._apply(event)
        except (KeyError, ValueError, IndexError, StopIteration) as error:
            raise StateError(
                f"step {self.step}: {type(event).__name__} does not fit the state before it ({error!r}); "
                "the recording is damaged or an event is missing"
            ) from error

    def _apply(self, event: ev.Event) -> None:
        match event:  # the frequent kinds first: cases are tried in order
            case ev.TokensScheduled():
                self._tokens_scheduled(event)
            case ev.TokensSampled():
                self._tokens_sampled(event)
            case ev.StepStarted():
                self.token_budget = event.token_budget
            case ev.BlockAllocated():
                self._block_allocated(event)
            case ev.BlockCached():
                self._block_cached(event)
            case ev.BlockEvicted():
                self._forget_hashes(event.block_ids, self.evicted_from)
            case ev.BlockTouched():
                self._block_touched(event)
            case ev.BlockReleased():
                self._block_released(event)
            case ev.BlockUncached():
                self._forget_hashes(event.block_ids, {})
                self._recount_cached(event.request_id)
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
                | ev.AdmissionEnded()
                | ev.RequestRejected()
                | ev.TokenTextRecorded()
                | ev.KVTransferStarted()
                | ev.KVTransferFinished()
                | ev.StepFinished()
                | ev.StepFailed()
            ):
                pass  # facts that change none of the books
            case _:
                assert_never(event)

    def _engine_configured(self, event: ev.EngineConfigured) -> None:
        self.config = event
        self.ref_cnts = [0] * event.num_gpu_blocks
        self.free_queue = OrderedDict.fromkeys(range(NULL_BLOCK + 1, event.num_gpu_blocks))

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

    def _block_allocated(self, event: ev.BlockAllocated) -> None:
        ref_cnts, free_queue, cached_from = self.ref_cnts, self.free_queue, self.cached_from
        take = free_queue.popitem
        for block_id in event.block_ids:
            head, _ = take(False)
            if head != block_id or block_id in cached_from:
                raise ValueError(
                    f"block {block_id} is taken, but the head of the free queue is {head}, or it is still cached"
                )
            ref_cnts[block_id] = 1
        self.requests[event.request_id].block_ids.extend(event.block_ids)

    def _block_touched(self, event: ev.BlockTouched) -> None:
        for block_id, ref_cnt in zip(event.block_ids, event.ref_cnts, strict=True):
            if ref_cnt == 1:
                del self.free_queue[block_id]
                if block_id in self.cached_from:
                    self.num_cached_free_blocks -= 1
            elif ref_cnt == 2:
                self.num_shared_blocks += 1
            if self.ref_cnts[block_id] != ref_cnt - 1:
                raise ValueError(f"block {block_id} has ref_cnt {self.ref_cnts[block_id]}, not {ref_cnt - 1}")
            self.ref_cnts[block_id] = ref_cnt
        request = self.requests[event.request_id]
        request.block_ids.extend(event.block_ids)
        request.num_cached_blocks = len(request.block_ids)

    def _block_released(self, event: ev.BlockReleased) -> None:
        ref_cnts, free_queue, cached_from = self.ref_cnts, self.free_queue, self.cached_from
        request = self.requests[event.request_id]
        released = len(event.freed_to_head) + len(event.freed_to_tail) + len(event.still_held)
        if released != len(request.block_ids):
            raise ValueError(f"{event.request_id} holds {len(request.block_ids)} blocks, not {released}")
        freed = event.freed_to_head + event.freed_to_tail
        num_free = len(free_queue)
        for block_id in freed:
            if ref_cnts[block_id] != 1:
                raise ValueError(f"block {block_id} is freed with ref_cnt {ref_cnts[block_id]}")
            ref_cnts[block_id] = 0
            free_queue[block_id] = None
        for block_id in reversed(event.freed_to_head):
            free_queue.move_to_end(block_id, last=False)
        if len(free_queue) != num_free + len(freed):
            raise ValueError(f"one of {freed} is freed that was free already")
        self.num_cached_free_blocks += sum(map(cached_from.__contains__, freed))
        for block_id in event.still_held:
            ref_cnts[block_id] -= 1
            if ref_cnts[block_id] == 1:
                self.num_shared_blocks -= 1
        request.block_ids = []
        request.num_cached_blocks = 0

    def _block_cached(self, event: ev.BlockCached) -> None:
        request = self.requests[event.request_id]
        end = event.first_index + len(event.block_ids)
        if tuple(request.block_ids[event.first_index : end]) != event.block_ids:
            raise ValueError(f"{event.block_ids} are not blocks {event.first_index}… of {event.request_id}")
        request_id, cached_from, block_hashes = event.request_id, self.cached_from, self.block_hashes
        for index, block_id, block_hash in zip(
            range(event.first_index, end), event.block_ids, event.block_hashes, strict=True
        ):
            cached_from[block_id] = (request_id, index)
            block_hashes[block_id] = block_hash
        for block_id, first_id in zip(event.block_ids, event.duplicate_of, strict=False):
            if first_id != NULL_BLOCK:
                group = self.duplicate_groups.setdefault(first_id, {first_id: None})
                group[block_id] = None
                self.duplicate_groups[block_id] = group
        request.num_cached_blocks = end

    def _forget_hashes(self, block_ids: tuple[int, ...], forgotten: dict[int, tuple[str, int]]) -> None:
        """Enters into `forgotten` what `cached_from` said of the blocks."""
        ref_cnts, groups = self.ref_cnts, self.duplicate_groups
        cached_from, block_hashes = self.cached_from, self.block_hashes
        for block_id in block_ids:
            forgotten[block_id] = cached_from.pop(block_id)
            block_hashes.pop(block_id, None)
            if not ref_cnts[block_id]:
                self.num_cached_free_blocks -= 1
            if block_id in groups:
                del groups.pop(block_id)[block_id]

    def _recount_cached(self, request_id: str) -> None:
        """Un-published blocks are the last published ones of a table: the count stops before the first of them."""
        request = self.requests.get(request_id)
        if request is not None:
            count = 0
            while count < len(request.block_ids) and request.block_ids[count] in self.cached_from:
                count += 1
            request.num_cached_blocks = count

    def _tokens_scheduled(self, event: ev.TokensScheduled) -> None:
        requests, tokens = self.requests, self.step_tokens
        prefill = decode = 0
        for request_id, num_tokens in zip(event.request_ids, event.num_tokens, strict=True):
            request = requests[request_id]
            if request.num_computed_tokens < request.num_prefill_tokens:
                prefill += num_tokens
            else:
                decode += num_tokens
            request.num_computed_tokens += num_tokens
            if request.draft_token_ids:
                request.draft_token_ids = ()
        draft = sum(map(len, event.draft_token_ids.values()))
        # Placeholder drafts that pad an admission of one token count as drafts, not as prefill.
        padded = sum(
            len(drafts)
            for request_id, drafts in event.draft_token_ids.items()
            if requests[request_id].num_computed_tokens - len(drafts) <= requests[request_id].num_prefill_tokens
        )
        tokens.prefill, tokens.decode, tokens.draft = prefill - padded, decode - (draft - padded), draft

    def _tokens_sampled(self, event: ev.TokensSampled) -> None:
        requests, step = self.requests, self.step
        counts: Sequence[int] = event.num_tokens if event.num_tokens is not None else (1,) * len(event.request_ids)
        for request_id, count in zip(event.request_ids, counts, strict=True):
            request = requests[request_id]
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
            cached_from=dict(self.cached_from),
            block_hashes=dict(self.block_hashes),
            duplicate_groups=groups,
            step_tokens=dataclasses.replace(self.step_tokens),
            evicted_from=dict(self.evicted_from),
            ended_ids=list(self.ended_ids),
        )
