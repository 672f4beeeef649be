"""The words on a request that waits at the step that is looked at: the answer in a few sentences, settings in words."""

from __future__ import annotations

from typing import Any

from kvscope.analysis.spans import Part, Span, count, dim, figure, plain, request, say, strong
from kvscope.analysis.spans import step as step_span
from kvscope.analysis.why.changes import Change
from kvscope.analysis.why.here import WaitingHere, WaitingRequest
from kvscope.analysis.why.words import BLOCK_TESTS, names, still_blocked, tokens_by_request

Words = tuple[Span, ...]


def behind_words(here: WaitingHere) -> Words:
    """Whom it is behind, and whether it would have fitted itself; nothing for the head."""
    if here.is_head:
        return ()
    row = here.asked_row
    parts: list[Part] = [
        request(here.asked.request_id),
        f" is number {row.position + 1} in the queue, behind ",
        request(here.head.request_id),
    ]
    if row.need is not None:
        noun = "block" if row.need + row.watermark == 1 else "blocks"
        watermark = f"+{row.watermark}" if row.watermark else ""
        parts += [
            "; it needs ",
            figure(f"{row.need}{watermark} {noun}"),
            " itself, ",
        ]
        fits = row.reason is None
        parts.append(strong("and would have fitted") if fits else "and would not have fitted either")
    parts.append(dim(f". It arrived {_ago(here.asked, row.step)}."))
    return say(*parts)


def answer_words(here: WaitingHere, since_step: int, *, is_longer: bool = False) -> Words:
    """Why the head was not admitted, with need and have; `since_step`: since when it has been so, or even longer."""
    row, head = here.row, here.head
    parts = [*_reason(here), ". "]
    num_steps = row.step - since_step + 1
    if num_steps > 1:
        how_long = f"{'at least ' if is_longer else ''}{num_steps} steps"
        parts += [f"So it has been for {how_long}, since step ", step_span(since_step), ". "]
    capacity = here.capacity
    if not capacity.can_ever_fit:
        parts += [
            strong("It can never get through"),
            f": its tokens fill {count(capacity.blocks_of_all_tokens, 'block')}, the pool has {capacity.pool}. ",
        ]
    place = "first in the queue"
    if head.num_preemptions:
        place += f", waiting {_steps_on(head.waiting_since_step, row.step)} since its preemption"
    parts.append(f"It arrived {_ago(head, row.step)} and is {place}.")
    return say(*parts)


def _steps_on(since: int, step: int) -> str:
    return count(step - since + 1, "step")


def _ago(waiting: WaitingRequest, step: int) -> str:
    return f"{count(step - waiting.arrival_step, 'step')} ago" if step > waiting.arrival_step else "in this step"


def _reason(here: WaitingHere) -> list[Part]:
    row, head = here.row, request(here.head.request_id)
    match row.stop:
        case "full_isl" | "full_isl_watermark" | "blocks" | "watermark":
            return _blocks(here)
        case "max_num_seqs":
            return [
                strong(
                    f"All {row.head_have} sequences are taken. "
                    if row.head_have != 1
                    else "The only sequence is taken. "
                ),
                head,
                " would be number ",
                figure(row.head_have + 1),
                dim(" (max_num_seqs)"),
            ]
        case "budget":
            taken = tokens_by_request(row.scheduled_tokens)
            return [strong(f"The step's {count(here.token_budget, 'token')} are used up"), ": ", *taken]
        case "preempted" if here.head.request_id in here.victims:
            return [head, strong(" was preempted in this step"), ", and a preempting step admits no one"]
        case "preempted":
            return [strong("A preempting step admits no one"), ": ", *names(here.victims), " lost its blocks in it"]
        case "chunked_prefill_off" | "spec_pad_budget":
            return [
                strong(f"{row.head_need - row.head_have} tokens too few are left. "),
                head,
                " needs ",
                figure(count(row.head_need, "token")),
                " in one piece, ",
                figure(f"{row.head_have} are left"),
            ]
        case "policy":
            return [strong("The batch is closed"), ": it takes nobody in before all its members have ended"]
        case None:
            return [strong("The step did not come to admissions")]
        case reason:
            return [strong(f"Refused: {reason}")]


def _blocks(here: WaitingHere) -> list[Part]:
    row, head = here.row, here.head
    short = row.head_need + row.head_watermark - row.head_have
    generated = head.num_tokens - head.num_prompt_tokens
    if row.stop in ("full_isl", "full_isl_watermark"):
        what = f" for all its {head.num_tokens} tokens"
        made_of = f" ({head.num_prompt_tokens} of prompt, {generated} generated before it was preempted)"
    else:
        what, made_of = " for its first chunk", ""
    kept = f", the watermark keeps {row.head_watermark} back" if row.head_watermark else ""
    cost = (
        f" ({head.free_hit_blocks} hold its own hit, and each costs one all the same)" if head.free_hit_blocks else ""
    )
    return [
        strong(f"The pool is {count(short, 'block')} short. "),
        request(head.request_id),
        " needs ",
        figure(count(row.head_need, "block")),
        what,
        dim(made_of if generated else ""),
        kept,
        ", and ",
        figure(f"{row.head_have} {'is' if row.head_have == 1 else 'are'} free"),
        dim(cost),
    ]


def change_words(change: Change, request_id: str) -> tuple[Words, Words]:
    """Returns a change as its value and what is to be said of it: `49 → 50`, `(1 more)`."""
    if not change.helps:
        blocked = change.still_blocked
        why = plain(still_blocked(blocked, request_id)) if blocked is not None else change.note
        return say("no"), say(dim(f": {why}" if why else ""))
    note = ""
    if change.watermark_blocks is not None:
        note = f"(keeps {count(change.watermark_blocks, 'block')})"
    elif change.difference is not None:
        note = f"({abs(change.difference)} {'more' if change.difference > 0 else 'less'})"
    return say(dim(f"{setting_text(change.now)} → "), figure(setting_text(change.value))), say(dim(note))


def setting_text(value: Any) -> str:
    """Returns a setting's value as a reader writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def is_blocks_test(here: WaitingHere) -> bool:
    """True where the head waits for blocks."""
    return here.row.stop in BLOCK_TESTS
