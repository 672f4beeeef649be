"""The facts of one request at a step: what it is, where it stands, what it got and had.

Its block table and sharers are in `kvscope.analysis.block_table`, its life on the time axis and where its time went in
`kvscope.analysis.life`, what happened to it in `kvscope.analysis.happenings`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from kvscope.analysis.admission_sentences import hit_owners, no_hit_reason
from kvscope.analysis.memory import remembered
from kvscope.analysis.spans import Part, Span, count, dim, say, strong
from kvscope.analysis.step_facts import StepShare
from kvscope.analysis.text import visible
from kvscope.analysis.token_view import request_text
from kvscope.replay.timeline import Moment, RequestRow, Timeline
from kvscope.state import EngineState, RequestState, RequestStatus


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
    lora_name: str | None
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


_PROMPT_TOKENS_SHOWN = 200
"""Of a prompt that was given as tokens only, so many are read for its one line of text."""


def request_facts(timeline: Timeline, moment: Moment, request_id: str) -> RequestFacts | None:
    """Returns a request's facts after the step; None where the recording has no such request."""
    row = timeline.request(request_id)
    request = moment.state.requests.get(request_id)
    if row is None:
        return None
    if request is None:
        return _absent(timeline, moment, row)
    state = moment.state
    facts = remembered(timeline).facts(moment)
    share = facts.shares.get(request_id)
    block_size = state.config.block_size if state.config is not None else 1
    is_waiting = request.status in ("WAITING", "PREEMPTED")
    return RequestFacts(
        request_id=request_id,
        status=request.status,
        phase=_phase(request, share),
        num_prompt_tokens=request.num_prompt_tokens,
        num_output_tokens=request.num_output_tokens,
        max_tokens=request.max_tokens,
        num_tokens=request.num_tokens,
        num_computed_tokens=request.num_computed_tokens,
        num_blocks=len(request.block_ids),
        num_new_blocks=facts.num_new_blocks[request_id],
        share=share,
        priority=request.priority,
        cache_salt=request.cache_salt,
        lora_name=request.lora_name,
        sampling=sampling_words(row.sampling),
        arrival_step=request.arrival_step,
        waiting_since_step=request.waiting_since_step if is_waiting else None,
        first_admitted_step=request.first_admitted_step,
        first_token_step=request.first_token_step,
        finished_step=request.finished_step,
        finish_reason=request.finish_reason,
        num_preemptions=request.num_preemptions,
        num_lost_tokens=request.num_lost_tokens,
        num_hit_tokens=request.num_hit_tokens,
        num_own_hit_tokens=request.num_own_hit_tokens,
        num_hit_blocks=request.num_hit_tokens // block_size,
        hit=_hit(state, request, block_size),
        queue_position=state.waiting.index(request_id) if is_waiting else None,
        prompt=_prompt(timeline, row),
    )


def _absent(timeline: Timeline, moment: Moment, row: RequestRow) -> RequestFacts:
    """Facts of a request that is not there at the step: it did not come yet, or it ended before."""
    has_ended = row.arrival_step <= moment.step
    is_aborted = row.finish_reason == "abort"
    return RequestFacts(
        request_id=row.request_id,
        status=("ABORTED" if is_aborted else "FINISHED") if has_ended else "NOT_ARRIVED",
        phase=("aborted" if is_aborted else "finished") if has_ended else "not arrived",
        num_prompt_tokens=row.num_prompt_tokens,
        num_output_tokens=row.num_output_tokens if has_ended else 0,
        max_tokens=row.max_tokens,
        num_tokens=row.num_prompt_tokens + (row.num_output_tokens if has_ended else 0),
        num_computed_tokens=0,
        num_blocks=0,
        num_new_blocks=0,
        share=None,
        priority=row.priority,
        cache_salt=row.cache_salt,
        lora_name=row.lora_name,
        sampling=sampling_words(row.sampling),
        arrival_step=row.arrival_step,
        waiting_since_step=None,
        first_admitted_step=row.first_admitted_step if has_ended else None,
        first_token_step=row.first_token_step if has_ended else None,
        finished_step=row.finished_step if has_ended else None,
        finish_reason=row.finish_reason if has_ended else None,
        num_preemptions=row.num_preemptions if has_ended else 0,
        num_lost_tokens=0,
        num_hit_tokens=0,
        num_own_hit_tokens=0,
        num_hit_blocks=0,
        hit=(),
        queue_position=None,
        prompt=_prompt(timeline, row),
    )


def _phase(request: RequestState, share: StepShare | None) -> str:
    if request.status == "RUNNING":
        is_prefill = share.is_prefill if share is not None else request.is_prefilling
        return "prefill" if is_prefill else "decode"
    return request.status.lower()


def _hit(state: EngineState, request: RequestState, block_size: int) -> tuple[Span, ...]:
    """Whose blocks its last admission took over, or why none."""
    if request.admitted_step is None:
        return ()
    if request.num_hit_tokens == 0:
        return say(dim(f"no hit: {no_hit_reason(state, request.num_prefill_tokens)}"))
    parts: list[Part] = [strong(count(request.num_hit_tokens, "token")), " hit"]
    hit_blocks = tuple(request.block_ids[: request.num_hit_tokens // block_size])
    if hit_blocks:
        parts += [", ", *hit_owners(state, request.request_id, hit_blocks)]
    return say(*parts)


def sampling_words(sampling: str) -> str:
    """Returns recorded sampling settings in words: `greedy`, `temperature 0.7, top_p 0.9`, or `default`."""
    try:
        settings = json.loads(sampling or "{}")
    except ValueError:
        return visible(sampling)
    if not isinstance(settings, dict):
        return visible(sampling)
    settings.pop("max_tokens", None)  # shown beside the output
    words: list[str] = []
    if settings.get("temperature") == 0:
        words.append("greedy")
        del settings["temperature"]
    words += [f"{name} {value}" for name, value in settings.items()]
    return visible(", ".join(words)) or "default"


def _prompt(timeline: Timeline, row: RequestRow) -> str:
    if row.prompt is not None:
        return visible(row.prompt)
    shown = min(row.num_prompt_tokens, _PROMPT_TOKENS_SHOWN)
    return request_text(timeline, row.request_id, timeline.last_step, 0, shown)
