"""Why a request still waits, in the few words that fit beside it in the waiting queue."""

from __future__ import annotations

from kvscope.analysis.spans import Part, Span, dim, figure, say, strong
from kvscope.engine.scheduling import rules
from kvscope.events import QueueTest, RequestBlocked

BLOCK_TESTS: tuple[QueueTest, ...] = ("full_isl", "full_isl_watermark", "blocks", "watermark")
"""The tests whose figures are blocks."""


def refused_words(blocked: RequestBlocked, *, is_victim: bool) -> tuple[Span, ...]:
    """Returns the recorded verdict on the head in a few words."""
    match blocked.reason:
        case "preempted":
            return say(strong("preempted in this step" if is_victim else "admission off: preemption"))
        case "budget":
            return say(figure("budget used up"))
        case "max_num_seqs":
            return say(figure(f"seqs {blocked.need - 1}/{blocked.have}"))
        case "chunked_prefill_off":
            return say("chunking off: ", figure(f"{blocked.need} > {blocked.have} left"))
        case "spec_pad_budget":
            return say("with drafts ", figure(f"{blocked.need} > {blocked.have} left"))
        case "full_isl" | "full_isl_watermark" | "blocks" | "watermark":
            wm = f"+{blocked.watermark_blocks}wm" if blocked.watermark_blocks else ""
            return say("need ", figure(f"{blocked.need}{wm} > {blocked.have} free"))
        case "policy":
            return say("batch closed, ", figure(f"{blocked.have} run"))
        case "empty" | "other":
            return say(f"refused: {blocked.reason}")


def behind_words(failed: rules.Verdict | None, need_blocks: int) -> tuple[Span, ...]:
    """Returns what a request that was not tried would have come to: `failed` is its first test, None where it fits."""
    if failed is not None and failed.reason not in BLOCK_TESTS:
        blocked = RequestBlocked(request_id="", reason=failed.reason, need=failed.need, have=failed.have)
        return say("↳ ", refused_words(blocked, is_victim=False))
    need: list[Part] = ["↳ need ", figure(need_blocks)]
    return say(*need, strong(" fits")) if failed is None else say(*need)


def not_judged_words() -> tuple[Span, ...]:
    """The same of a step that ended before anybody could be judged."""
    return say(dim("↳ not judged"))
