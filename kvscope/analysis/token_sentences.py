"""Sentences on tokens: drafts that were verified, prefills that go on, what of the budget nobody got.

Every function returns the sentences of one kind, in the order in which things happened.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvscope import events as ev
from kvscope.analysis.admission_sentences import capped_by_threshold
from kvscope.analysis.memory import remembered
from kvscope.analysis.spans import (
    Part,
    Sentence,
    count,
    dim,
    dotted,
    figure,
    request,
    say,
    strong,
)
from kvscope.analysis.step_facts import StepFacts
from kvscope.replay.timeline import Moment, Timeline

_MAX_NAMES = 3
_MAX_BLOCKS = 12
_MAX_ITEMS = 6
_MAX_BLOCKS_OF_ITEM = 4
_MAX_SINGLE = 3
"""Up to so many evictions or prefills have a sentence each; more are put together."""


def drafts(moment: Moment) -> Iterator[Sentence]:
    """≈ How many drafts the model accepted, of whom."""
    scheduled: dict[str, tuple[int, ...]] = {}
    verified: list[ev.DraftsVerified] = []
    num_placeholders = 0
    for event in moment.events:
        if isinstance(event, ev.TokensScheduled):
            scheduled = event.draft_token_ids
        elif isinstance(event, ev.DraftsVerified):
            tokens = scheduled.get(event.request_id, ())
            if tokens and all(token_id < 0 for token_id in tokens):
                num_placeholders += event.num_drafts
            else:
                verified.append(event)
    if verified:
        yield _verified(verified, num_placeholders)
    elif num_placeholders:
        yield Sentence(
            "≈",
            "drafts",
            say(figure(count(num_placeholders, "placeholder draft")), " rejected: they only pad an admission"),
        )


def _verified(verified: list[ev.DraftsVerified], num_placeholders: int) -> Sentence:
    num_drafts = sum(event.num_drafts for event in verified)
    num_accepted = sum(event.num_accepted for event in verified)
    num_rolled_back = sum(event.num_rolled_back for event in verified)
    num_discarded = sum(event.num_discarded for event in verified)
    parts: list[Part] = [
        strong(f"{num_accepted} of {count(num_drafts, 'draft')}"),
        " accepted",
    ]
    if num_rolled_back:
        parts.append(f", {num_rolled_back} rolled back")
    if num_discarded:
        parts.append(f", {num_discarded} dropped behind the end of their request")
    if num_placeholders:
        parts.append(f", {count(num_placeholders, 'placeholder')} rejected")
    items: list[list[Part]] = [
        [request(event.request_id, "dim"), dim(f" {event.num_accepted}/{event.num_drafts}")]
        for event in sorted(verified, key=lambda event: -event.num_accepted)
    ]
    return Sentence("≈", "drafts", say(*parts, dim(": "), *dotted(items, _MAX_ITEMS)))


def prefills(timeline: Timeline, moment: Moment) -> Iterator[Sentence]:
    """▓ Which prefills of earlier steps went on, and how far they are."""
    facts = remembered(timeline).facts(moment)
    going_on = [
        share for share in facts.shares.values() if share.is_prefill and share.request_id not in facts.admitted_ids
    ]
    lefts = {
        share.request_id: moment.state.requests[share.request_id].num_prefill_tokens
        - share.num_computed_before
        - share.num_tokens
        + share.num_draft_tokens
        for share in going_on
    }
    if len(going_on) <= _MAX_SINGLE:
        for share in going_on:
            left = lefts[share.request_id]
            state = f"{left} left" if left else "done"
            yield Sentence(
                "▓",
                "prefill",
                say(
                    request(share.request_id),
                    " prefill goes on: ",
                    figure(f"{count(share.num_tokens, 'token')}"),
                    f", {state}",
                    *capped_by_threshold(moment.state, share.num_tokens, left),
                ),
            )
        return
    items: list[list[Part]] = [
        [
            request(share.request_id, "dim"),
            dim(f" {share.num_tokens}, {lefts[share.request_id]} left"),
        ]
        for share in going_on
    ]
    total = sum(share.num_tokens for share in going_on)
    yield Sentence(
        "▓",
        "prefill",
        say(
            strong(f"{len(going_on)} prefills"), " go on with ", figure(total), " tokens: ", *dotted(items, _MAX_ITEMS)
        ),
    )


def unused_budget(facts: StepFacts) -> Iterator[Sentence]:
    """= How much of the budget nobody got while somebody waited, and why."""
    ended = facts.admission_ended
    if ended is None or ended.token_budget_left <= 0 or ended.num_waiting == 0:
        return
    left, budget = ended.token_budget_left, facts.token_budget
    parts: list[Part] = [
        strong(f"{left} of {count(budget, 'token')}"),
        " unused while ",
        strong(f"{ended.num_waiting} waited"),
        dim(": "),
        *_why_unused(facts, ended),
    ]
    yield Sentence("=", "budget", say(*parts))


def _why_unused(facts: StepFacts, ended: ev.AdmissionEnded) -> list[Part]:
    head: Part = request(facts.blocked.request_id) if facts.blocked is not None else "the head of the queue"
    match ended.reason:
        case "preempted":
            plural = "s" if len(facts.preemptions) > 1 else ""
            return [dim(f"admission was off after the preemption{plural}")]
        case "max_num_seqs":
            return [dim("every sequence was taken")]
        case "chunked_prefill_off":
            return [dim("the prompt of "), head, dim(" may not be cut")]
        case "spec_pad_budget":
            return [dim("too few for "), head, dim(" with its drafts")]
        case "full_isl" | "full_isl_watermark" | "blocks" | "watermark":
            behind = ", and nobody behind the head is tried" if ended.num_waiting > 1 else ""
            return [dim("no room for "), head, dim(behind)]
        case "policy":
            return [dim("the batch is closed until its members are done")]
        case "budget" | "empty" | "other":
            return [dim(f"admission ended with “{ended.reason}”")]
