"""Writes the scheduler's decisions down as events, after they took effect. Builds none while nobody records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal

from kvscope import events as ev
from kvscope.engine.scheduling.block_pool import ReleasedBlocks
from kvscope.engine.scheduling.output import SchedulerOutput, StepResult
from kvscope.engine.scheduling.request import Request, RequestStatus, SamplingParams
from kvscope.engine.scheduling.rules import Shortage, Verdict
from kvscope.engine.scheduling.step_events import StepEvents

_FINISH_REASONS: Mapping[RequestStatus, ev.FinishReason] = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH: "length",
    RequestStatus.FINISHED_ERROR: "error",
}


class DecisionLog:
    """One method for each kind of decision; what its event holds and means is said in `kvscope.events`."""

    def __init__(self, step_events: StepEvents, block_size: int) -> None:
        self._events = step_events
        self._block_size = block_size
        self._scheduled_ids: tuple[str, ...] = ()
        """Of the step under way."""

    def arrived(self, request: Request, queue_position: int) -> None:
        if not self._events.is_recording:
            return
        self._events.append(
            ev.RequestArrived(
                request_id=request.request_id,
                prompt_token_ids=tuple(request.prompt_token_ids),
                max_tokens=request.sampling.max_tokens,
                arrival_time=request.arrival_time,
                queue_position=queue_position,
                priority=request.priority,
                cache_salt=request.cache_salt,
                lora_name=request.lora_name,
                prompt=request.prompt,
                sampling=_changed_settings(request.sampling),
                stop_token_ids=request.sampling.stop_token_ids,
                arrival_ns=request.arrival_ns,
                template_ns=request.template_ns,
                tokenize_ns=request.tokenize_ns,
            )
        )

    def aborted(self, request: Request, status: RequestStatus, *, during_execution: bool) -> None:
        """`status` is what the request was before."""
        if self._events.is_recording:
            name: Any = status.name
            self._events.append(
                ev.RequestAborted(request_id=request.request_id, status=name, during_execution=during_execution)
            )

    def allocation_failed(
        self, request: Request, phase: Literal["running", "waiting"], shortage: Shortage, num_new_tokens: int
    ) -> None:
        if self._events.is_recording:
            self._events.append(
                ev.AllocationFailed(
                    request_id=request.request_id,
                    phase=phase,
                    reason=shortage.reason,
                    need_step=shortage.need_step,
                    need_full=shortage.need_full,
                    num_free_blocks=shortage.num_free_blocks,
                    watermark_blocks=shortage.watermark_blocks,
                    num_tokens=num_new_tokens,
                )
            )

    def looked_up(self, request: Request, hit_block_ids: Sequence[int], num_free_hit_blocks: int) -> None:
        if self._events.is_recording:
            self._events.append(
                ev.PrefixLookedUp(
                    request_id=request.request_id,
                    num_hit_tokens=len(hit_block_ids) * self._block_size,
                    block_ids=tuple(hit_block_ids),
                    num_free_hit_blocks=num_free_hit_blocks,
                )
            )

    def admitted(
        self, request: Request, num_new_tokens: int, hit_block_ids: Sequence[int], computed_by: Sequence[str | None]
    ) -> None:
        """`computed_by` names, by block id, the request that had computed each hit block."""
        if not self._events.is_recording:
            return
        num_hit_tokens = len(hit_block_ids) * self._block_size
        if hit_block_ids:
            num_own = sum(computed_by[block_id] == request.request_id for block_id in hit_block_ids)
            self._events.append(
                ev.PrefixCacheHit(
                    request_id=request.request_id,
                    num_hit_tokens=num_hit_tokens,
                    num_own_hit_tokens=num_own * self._block_size,
                    block_ids=tuple(hit_block_ids),
                )
            )
        self._events.append(
            (ev.RequestResumed if request.num_preemptions else ev.RequestAdmitted)(
                request_id=request.request_id,
                num_tokens=request.num_tokens,
                num_hit_tokens=num_hit_tokens,
                num_scheduled_tokens=num_new_tokens,
            )
        )

    def admission_ended(
        self, verdict: Verdict | None, head: Request | None, num_waiting: int, token_budget_left: int
    ) -> None:
        """Without a `head` nobody waits any more, whatever the last test said."""
        if not self._events.is_recording:
            return
        if verdict is not None and head is not None:
            self._events.append(
                ev.RequestBlocked(
                    request_id=head.request_id,
                    reason=verdict.reason,
                    need=verdict.need,
                    have=verdict.have,
                    watermark_blocks=verdict.watermark_blocks,
                )
            )
        self._events.append(
            ev.AdmissionEnded(
                reason="empty" if verdict is None else verdict.reason,
                num_waiting=num_waiting,
                token_budget_left=token_budget_left,
            )
        )

    def preempted(
        self,
        victim: Request,
        beneficiary: Request,
        released: ReleasedBlocks,
        *,
        num_lost_tokens: int,
        num_returned_tokens: int,
        queue_position: int,
    ) -> None:
        """Without the release itself, which follows."""
        if self._events.is_recording:
            num_freed_blocks = len(released.freed_to_head) + len(released.freed_to_tail)
            self._events.append(
                ev.RequestPreempted(
                    request_id=victim.request_id,
                    beneficiary_id=beneficiary.request_id,
                    num_freed_blocks=num_freed_blocks,
                    num_table_blocks=num_freed_blocks + len(released.still_held),
                    num_lost_tokens=num_lost_tokens,
                    num_returned_tokens=num_returned_tokens,
                    queue_position=queue_position,
                )
            )

    def unpublished(
        self, request: Request, block_ids: tuple[int, ...], reason: Literal["preempted", "step_failed"]
    ) -> None:
        if self._events.is_recording and block_ids:
            self._events.append(ev.BlockUncached(request_id=request.request_id, block_ids=block_ids, reason=reason))

    def released(self, request: Request, released: ReleasedBlocks) -> None:
        """Nothing for a request that held no block."""
        if self._events.is_recording and any(released):
            self._events.append(
                ev.BlockReleased(
                    request_id=request.request_id,
                    freed_to_head=released.freed_to_head,
                    freed_to_tail=released.freed_to_tail,
                    still_held=released.still_held,
                )
            )

    def scheduled(self, output: SchedulerOutput) -> None:
        if self._events.is_recording:
            drafts = output.scheduled_spec_tokens
            self._scheduled_ids = _ids(output.requests)
            self._events.append(
                ev.TokensScheduled(
                    request_ids=self._scheduled_ids,
                    num_tokens=tuple(output.num_scheduled_tokens),
                    draft_token_ids={request_id: tuple(token_ids) for request_id, token_ids in drafts.items()},
                )
            )

    def sampled(self, result: StepResult) -> None:
        """Of the scheduled requests those that got tokens: in most steps all of them."""
        if self._events.is_recording and result.requests:
            num_requests = len(result.requests)
            is_everybody = num_requests == len(self._scheduled_ids)
            token_ids = tuple(chain.from_iterable(result.new_token_ids))
            self._events.append(
                ev.TokensSampled(
                    request_ids=self._scheduled_ids if is_everybody else _ids(result.requests),
                    token_ids=token_ids,
                    num_tokens=None if len(token_ids) == num_requests else tuple(map(len, result.new_token_ids)),
                )
            )

    def verified(self, request: Request, num_drafts: int, sampled: Sequence[int], kept: Sequence[int]) -> None:
        """All but the last sampled token are accepted drafts; what is not `kept` came after the request's end."""
        if self._events.is_recording:
            num_accepted = len(sampled) - 1
            self._events.append(
                ev.DraftsVerified(
                    request_id=request.request_id,
                    num_drafts=num_drafts,
                    num_accepted=num_accepted,
                    num_rolled_back=num_drafts - num_accepted,
                    num_discarded=len(sampled) - len(kept),
                    discarded_token_ids=tuple(sampled[len(kept) :]),
                )
            )

    def proposed(self, request: Request) -> None:
        if self._events.is_recording:
            self._events.append(
                ev.DraftsProposed(request_id=request.request_id, draft_token_ids=tuple(request.spec_token_ids))
            )

    def finished(self, request: Request) -> None:
        if self._events.is_recording:
            self._events.append(
                ev.RequestFinished(
                    request_id=request.request_id,
                    reason=_FINISH_REASONS[request.status],
                    num_output_tokens=request.num_output_tokens,
                    stop=request.stop_reason,
                )
            )


def _ids(requests: Sequence[Request]) -> tuple[str, ...]:
    return tuple([request.request_id for request in requests])


def _changed_settings(sampling: SamplingParams) -> dict[str, Any]:
    """Returns the settings that differ from their defaults."""
    defaults = SamplingParams()
    return {
        field.name: value
        for field in dataclasses.fields(sampling)
        if (value := getattr(sampling, field.name)) != getattr(defaults, field.name)
    }
