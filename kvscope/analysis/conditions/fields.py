"""The names that a condition may use, and what each one means.

A field belongs to the step or to a request. What happens (`preempted`, `evicted`, …) belongs to both: it is counted
over the step, or, in a condition that names a field of a request, for that request alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from kvscope import events as ev
from kvscope.state import RequestStatus

FieldKind = Literal["number", "flag", "text"]
FieldScope = Literal["step", "request", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One name. `values`: what a text may be compared with; empty for any."""

    name: str
    kind: FieldKind
    scope: FieldScope
    meaning: str
    is_happening: bool = False
    """Something that happens in a step, and not a state that lasts: each step of it is a stop of its own."""
    values: tuple[str, ...] = ()


def _step(name: str, meaning: str, kind: FieldKind = "number", values: tuple[str, ...] = ()) -> Field:
    return Field(name=name, kind=kind, scope="step", meaning=meaning, values=values)


def _request(name: str, meaning: str, kind: FieldKind = "number", values: tuple[str, ...] = ()) -> Field:
    return Field(name=name, kind=kind, scope="request", meaning=meaning, values=values)


def _happening(name: str, meaning: str) -> Field:
    return Field(name=name, kind="number", scope="both", meaning=meaning, is_happening=True)


_ALL = (
    _step("step", "the step's number"),
    _step("free_blocks", "blocks in the free queue after the step"),
    _step("live_blocks", "blocks that requests hold"),
    _step("cached_blocks", "free blocks that can still be hit"),
    _step("shared_blocks", "blocks that several requests hold"),
    _step("running", "requests in the running list"),
    _step("waiting", "requests in the waiting queue"),
    _step("token_budget", "tokens that the step might schedule"),
    _step("unused_tokens", "of these, not scheduled"),
    _step("prefill_tokens", "scheduled tokens of prefills"),
    _step("decode_tokens", "scheduled tokens of decoding requests"),
    _step("draft_tokens", "scheduled draft tokens"),
    _step("step_ms", "how long the step took, in milliseconds"),
    _step("schedule_ms", "of this, deciding"),
    _step("forward_ms", "of this, the model"),
    _step("stalled", "nothing was scheduled while something waited", "flag"),
    _step("failed", "the step raised", "flag"),
    _step("admission_stop", "the test at which admission stopped", "text", get_args(ev.QueueTest)),
    Field(name="scheduled_tokens", kind="number", scope="both", meaning="tokens scheduled"),
    Field(name="sampled_tokens", kind="number", scope="both", meaning="tokens generated"),
    _happening("arrived", "requests that arrived"),
    _happening("admitted", "requests admitted for the first time"),
    _happening("resumed", "requests admitted again after a preemption"),
    _happening("preempted", "requests preempted"),
    _happening("finished", "requests that ended by themselves"),
    _happening("aborted", "requests aborted"),
    _happening("rejected", "requests refused before they reached a queue"),
    _happening("hit", "admissions with a prefix cache hit"),
    _happening("allocated", "blocks taken from the free queue"),
    _happening("published", "blocks published for prefix hits"),
    _happening("evicted", "cached blocks lost for an allocation"),
    _happening("released", "blocks given back, those that others still hold among them"),
    _request("request", "its id", "text"),
    _request("status", "what it is after the step", "text", get_args(RequestStatus)),
    _request("prompt_tokens", "tokens of its prompt"),
    _request("output_tokens", "tokens that it has generated"),
    _request("computed_tokens", "tokens whose KV is computed"),
    _request("max_tokens", "tokens that it may generate"),
    _request("hit_tokens", "tokens hit at its last admission"),
    _request("blocks", "blocks in its table"),
    _request("priority", "its priority; smaller is more urgent"),
    _request("preemptions", "how often it was preempted"),
    _request("waiting_steps", "steps since it began to wait; 0 where it does not wait"),
    _request("age_steps", "steps since it arrived"),
    _request("prefilling", "it runs, and its prefill is not complete", "flag"),
    _request("refused_by", "the test that refused it as the head of the queue", "text", get_args(ev.QueueTest)),
    _request("finish_reason", "why it ended in this step", "text", get_args(ev.FinishReason)),
)

FIELDS: dict[str, Field] = {field.name: field for field in _ALL}
