"""Words that several parts of an answer use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvscope.analysis.spans import Part, Span, count, dim, figure, listed, request, say
from kvscope.analysis.spans import step as step_span
from kvscope.analysis.why.trials import StillBlocked
from kvscope.events import QueueTest

MAX_NAMES = 4
_MAX_RUNS = 3
_NS_PER_MS = 1e6
_MS_AS_SECONDS = 10_000

TEST_NAMES: Mapping[QueueTest, str] = {
    "preempted": "a preempting step admits no one",
    "budget": "the token budget was used up",
    "empty": "nobody waited",
    "max_num_seqs": "every sequence was taken",
    "spec_pad_budget": "no budget for it with its drafts",
    "chunked_prefill_off": "its prompt may not be cut",
    "full_isl": "blocks for all its tokens",
    "full_isl_watermark": "blocks for all its tokens + watermark",
    "blocks": "blocks for its first chunk",
    "watermark": "blocks for its first chunk + watermark",
    "policy": "the batch is closed",
    "other": "another test",
}
TOKEN_TESTS: tuple[QueueTest, ...] = ("budget", "chunked_prefill_off", "spec_pad_budget")
BLOCK_TESTS: tuple[QueueTest, ...] = ("full_isl", "full_isl_watermark", "blocks", "watermark")


def steps_words(first: int, last: int) -> list[Part]:
    """Returns `step 7`, or `steps 2–13`, as jumps."""
    if first == last:
        return ["step ", step_span(first)]
    return ["steps ", step_span(first), "–", step_span(last)]


def span_of(low: int, high: int) -> str:
    """Returns `5–12`, or the figure alone where both are one."""
    return str(low) if low == high else f"{low}–{high}"


def steps_listed(steps: Sequence[int]) -> str:
    """Returns step numbers with runs drawn together: `4–13, 16`."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][1] + 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    return ", ".join(span_of(first, last) for first, last in runs)


def steps_in_short(steps: Sequence[int]) -> str:
    """Returns the steps as listed where they are few runs, else between which they lie."""
    words = steps_listed(steps)
    return words if words.count(",") < _MAX_RUNS else f"between {steps[0]} and {steps[-1]}"


def names(request_ids: Sequence[str], limit: int = MAX_NAMES) -> list[Part]:
    """Returns `a, b and c`, beyond the limit `a, b and 3 others`, as jumps."""
    return listed([request(request_id) for request_id in request_ids], limit)


def still_blocked(blocked: StillBlocked, request_id: str) -> tuple[Span, ...]:
    """Returns what fails even with the most helpful value."""
    who: list[Part] = ["it" if blocked.request_id == request_id else request(blocked.request_id)]
    match blocked.reason:
        case "full_isl" | "full_isl_watermark" | "blocks" | "watermark":
            wm = f"+{blocked.watermark_blocks}wm" if blocked.watermark_blocks else ""
            return say(*who, " needs ", figure(f"{blocked.need}{wm} blocks > {blocked.have} free"))
        case "max_num_seqs":
            return say(figure(f"{blocked.need - 1} of {blocked.have}"), " sequences are running")
        case "budget":
            return say("the budget is used up")
        case "preempted":
            return say("the step still preempts")
        case "chunked_prefill_off" | "spec_pad_budget":
            return say(*who, " needs ", figure(f"{blocked.need} tokens > {blocked.have} left"))
        case "policy":
            return say("the batch is closed")
        case "empty" | "other":
            return say(dim(blocked.reason))


def failed_in_short(reason: QueueTest | None) -> str:
    """Returns why a request behind the head would not have been admitted either, in a few words."""
    match reason:
        case "full_isl" | "full_isl_watermark":
            return "too few blocks for all its tokens"
        case "blocks" | "watermark":
            return "too few blocks for its first chunk"
        case "budget":
            return "no tokens are left for it"
        case "chunked_prefill_off":
            return "its prompt is longer than the tokens left"
        case "spec_pad_budget":
            return "no tokens are left for it with its drafts"
        case "max_num_seqs":
            return "no sequence is free"
        case "preempted":
            return "a preempting step admits no one"
        case "policy":
            return "the batch is closed"
        case _:
            return "would not have fitted"


def milliseconds(duration_ns: int | None) -> str:
    """Returns `7.5 ms`, from 100 ms on without a fraction, from 10 s on `22.8 s`; `-` where the time is not known."""
    if duration_ns is None:
        return "-"
    value = duration_ns / _NS_PER_MS
    if abs(value) >= _MS_AS_SECONDS:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if abs(value) >= 100 else f"{value:.1f} ms"


def tokens_by_request(tokens: Mapping[str, int], limit: int = MAX_NAMES) -> list[Part]:
    """Returns `long 59 tokens and d0 1 token`, the most first."""
    rows = sorted(tokens.items(), key=lambda item: -item[1])
    parts: list[Part] = []
    for index, (request_id, number) in enumerate(rows[:limit]):
        parts += [", " if index else "", request(request_id), f" {count(number, 'token')}"]
    if len(rows) > limit:
        rest = rows[limit:]
        parts.append(f", {count(len(rest), 'other')} {count(sum(number for _, number in rest), 'token')}")
    return parts
