"""Sentences on the queues: who came, who was preempted for whom, who was refused and why, who got nothing.

Every function returns the sentences of one kind, in the order in which things happened.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvscope import events as ev
from kvscope.analysis.memory import remembered
from kvscope.analysis.spans import (
    Part,
    Sentence,
    count,
    dim,
    figure,
    listed,
    request,
    say,
    strong,
)
from kvscope.analysis.step_facts import setting
from kvscope.analysis.text import visible
from kvscope.analysis.verdicts import would_fit
from kvscope.engine.scheduling.rules import num_blocks_for
from kvscope.replay.timeline import Moment, Timeline
from kvscope.state import EngineState

_MAX_NAMES = 3


def preemptions(moment: Moment) -> Iterator[Sentence]:
    """▲ Who lost its blocks for whom, with the failed allocation that led to it."""
    failed: ev.AllocationFailed | None = None
    for event in moment.events:
        if isinstance(event, ev.AllocationFailed):
            failed = event
        elif isinstance(event, ev.RequestPreempted):
            cause = failed if failed is not None and failed.request_id == event.beneficiary_id else None
            yield preempted(event, cause, moment.state)
            failed = None


def preempted(event: ev.RequestPreempted, cause: ev.AllocationFailed | None, state: EngineState) -> Sentence:
    """One preemption; `cause` is the beneficiary's failed allocation."""
    parts: list[Part] = [request(event.request_id), " preempted "]
    is_priority = setting(state, "policy") == "priority"
    if event.beneficiary_id == event.request_id:
        parts.append("itself: it was the least urgent" if is_priority else "itself: it was last in line")
        if cause is not None and cause.num_free_blocks == 0:
            parts.append(" and no block was free; ")
        elif cause is not None:
            parts += [f" and needed {count(cause.need_step, 'block')} with {cause.num_free_blocks} free; "]
        else:
            parts.append("; ")
    else:
        parts += ["for ", request(event.beneficiary_id)]
        if cause is not None:
            parts += [
                ", which needed ",
                figure(count(cause.need_step, "block")),
                " with ",
                figure(cause.num_free_blocks),
                " free",
            ]
        parts.append(": ")
    blocks = "block" if event.num_table_blocks == 1 else "blocks"
    parts += [
        strong(f"{event.num_freed_blocks} of {event.num_table_blocks} {blocks}"),
        " freed, ",
        figure(count(event.num_lost_tokens, "token")),
        " thrown away",
    ]
    if event.num_returned_tokens:
        parts.append(dim(f"; {count(event.num_returned_tokens, 'token')} of this step back to the budget"))
    victim, winner = state.requests.get(event.request_id), state.requests.get(event.beneficiary_id)
    if is_priority and victim and winner and victim.priority != winner.priority:
        parts.append(dim(f"; priority {victim.priority} against {winner.priority}"))
    return Sentence("▲", "preempted", say(*parts))


def refusal(timeline: Timeline, moment: Moment) -> Iterator[Sentence]:
    """✗ Why the head of the queue was not admitted, and who behind it would have been."""
    facts = remembered(timeline).facts(moment)
    blocked, ended = facts.blocked, facts.admission_ended
    if ended is None or ended.num_waiting == 0:
        return
    if ended.reason == "preempted":
        fits = _would_fit(timeline, moment)
        yield Sentence(
            "✗",
            "refused",
            say(strong("Nobody admitted:"), " a preempting step admits no one", dim("; "), dim(fits)),
        )
    elif blocked is not None:
        parts = [request(blocked.request_id), " not admitted: ", *_failed_test(moment, blocked)]
        parts += _never_fits(moment.state, blocked)
        lookup = facts.lookups.get(blocked.request_id)
        if lookup is not None and lookup.num_free_hit_blocks:
            number = lookup.num_free_hit_blocks
            costs = "lies in the free queue and costs as much as a new one"
            cost = "lie in the free queue and cost as much as new ones"
            parts.append(dim(f"; {count(number, 'block')} of its hit {costs if number == 1 else cost}"))
        parts += _behind(timeline, moment, blocked)
        yield Sentence("✗", "refused", say(*parts))


def _would_fit(timeline: Timeline, moment: Moment) -> str:
    fits = would_fit(timeline, moment)
    if not fits.num_waiting:
        return "nobody waits any more"
    waits = f"{fits.num_waiting} {'waits' if fits.num_waiting == 1 else 'wait'}"
    of_first = f" of the first {fits.num_judged}" if fits.num_judged < fits.num_waiting else ""
    return f"{waits}, {len(fits.request_ids) or 'none'}{of_first} would fit"


def _failed_test(moment: Moment, blocked: ev.RequestBlocked) -> list[Part]:
    state = moment.state
    match blocked.reason:
        case "full_isl" | "full_isl_watermark" | "blocks" | "watermark":
            return _block_test(moment, blocked)
        case "max_num_seqs":
            are_running = "sequence is running" if blocked.have == 1 else "sequences are running"
            return [figure(f"{blocked.need - 1} of {blocked.have}"), f" {are_running}", dim(" (max_num_seqs)")]
        case "budget":
            budget = state.token_budget
            return ["all ", figure(count(budget, "token")), " of the budget are used"]
        case "chunked_prefill_off":
            return ["chunked prefill is off, ", figure(f"{blocked.need} tokens > {blocked.have} left")]
        case "spec_pad_budget":
            return [
                "it would be padded with drafts to ",
                figure(f"{blocked.need} tokens > {blocked.have} left"),
                " of the budget",
            ]
        case "preempted":
            return ["a preempting step admits no one"]
        case "policy":
            still = "request of the batch still runs" if blocked.have == 1 else "requests of the batch still run"
            return [figure(str(blocked.have)), f" {still}", dim(" (static batching admits nobody before they end)")]
        case "empty" | "other":
            return [f"the test “{blocked.reason}” failed: {blocked.need} against {blocked.have}"]


def _block_test(moment: Moment, blocked: ev.RequestBlocked) -> list[Part]:
    wm = f"+{blocked.watermark_blocks}" if blocked.watermark_blocks else ""
    if blocked.reason in ("full_isl", "full_isl_watermark"):
        what = "all its tokens"
    else:
        tokens = next(
            (
                event.num_tokens
                for event in moment.events
                if isinstance(event, ev.AllocationFailed) and event.request_id == blocked.request_id
            ),
            0,
        )
        what = f"{count(tokens, 'token')} in this step" if tokens else "its share of this step"
    if wm:
        what += " + watermark"
    noun = "block" if blocked.need == 1 and not wm else "blocks"
    free = f"{blocked.have} {'is' if blocked.have == 1 else 'are'} free"
    return ["needs ", figure(f"{blocked.need}{wm} {noun}"), f" ({what}), ", figure(free)]


def _never_fits(state: EngineState, blocked: ev.RequestBlocked) -> list[Part]:
    """Says so where the whole pool is too small for all its tokens."""
    waiting = state.requests.get(blocked.request_id)
    if waiting is None or state.config is None or blocked.reason not in ("full_isl", "full_isl_watermark"):
        return []
    need = num_blocks_for(waiting.num_tokens, state.config.block_size)
    if need <= state.num_usable_blocks:
        return []
    return ["; ", strong("it can never be admitted:"), f" the pool has {count(state.num_usable_blocks, 'block')}"]


def _behind(timeline: Timeline, moment: Moment, blocked: ev.RequestBlocked) -> list[Part]:
    num_behind = sum(request_id != blocked.request_id for request_id in moment.state.waiting)
    if num_behind == 0:
        return []
    parts: list[Part] = ["; ", dim(f"{num_behind} behind it, ")]
    if blocked.reason in ("budget", "max_num_seqs"):  # what stopped the head stops them all
        return [*parts, dim("none would fit")]
    fits = would_fit(timeline, moment)
    if not fits.request_ids:
        return [*parts, dim("none would fit")]
    names: list[Part] = [request(fits.request_ids[0])]
    if len(fits.request_ids) > 1:
        names.append(f" and {len(fits.request_ids) - 1} more")
    beyond = f" of the first {fits.num_judged - 1}" if fits.num_judged < fits.num_waiting else ""
    return [*parts, *names, f"{beyond} would fit"]


def arrivals(moment: Moment) -> Iterator[Sentence]:
    """↓ Who came."""
    is_priority = setting(moment.state, "policy") == "priority"
    for event in moment.events:
        if isinstance(event, ev.RequestArrived):
            parts: list[Part] = [
                request(event.request_id),
                f" arrived with {count(len(event.prompt_token_ids), 'prompt token')}",
            ]
            if is_priority:
                parts.append(dim(f"; priority {event.priority}, place {event.queue_position + 1} in the queue"))
            if event.cache_salt is not None:
                parts.append(dim(f"; cache salt “{visible(event.cache_salt)}”"))
            if event.lora_name is not None:
                parts.append(dim(f"; adapter “{visible(event.lora_name)}”"))
            yield Sentence("↓", "arrived", say(*parts))


def rejections(moment: Moment) -> Iterator[Sentence]:
    """✗ Who was refused before it reached a queue."""
    for event in moment.events:
        if isinstance(event, ev.RequestRejected):
            parts: list[Part] = [
                request(event.request_id),
                " rejected: ",
                figure(f"{event.have} > {event.limit}"),
                dim(f" ({visible(event.reason)})"),
            ]
            if event.message:
                parts.append(dim(f"; {visible(event.message)}"))
            yield Sentence("✗", "refused", say(*parts))


def got_nothing(timeline: Timeline, moment: Moment) -> Iterator[Sentence]:
    """╌ Which running requests were not scheduled, where the events say why."""
    facts = remembered(timeline).facts(moment)
    if facts.admission_ended is None or (facts.failed is not None and not facts.shares):
        return
    left_out = [request_id for request_id in moment.state.running if request_id not in facts.shares]
    if not left_out:
        return
    parts: list[Part] = [
        *listed([request(request_id) for request_id in left_out], _MAX_NAMES),
        " got nothing: " if facts.admission_ended.token_budget_left == 0 or facts.preemptions else " got nothing",
    ]
    given_up = next((p.request_id for p in facts.preemptions if p.request_id == p.beneficiary_id), None)
    if given_up is not None:
        parts += ["scheduling ended when ", request(given_up), " preempted itself"]
    elif facts.admission_ended.token_budget_left == 0:
        parts += ["all ", figure(count(facts.token_budget, "token")), " of the budget went to those before"]
    yield Sentence("╌", "budget", say(*parts))
