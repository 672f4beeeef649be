"""The words on where the time went: first token, gaps, others' prefill."""

from __future__ import annotations

from collections.abc import Iterator

from kvscope.analysis.spans import Part, count, dim, figure, request, strong
from kvscope.analysis.spans import step as step_span
from kvscope.analysis.why.layout import Line, sentence, table
from kvscope.analysis.why.slow_records import Gap, SlowAnswer
from kvscope.analysis.why.words import (
    milliseconds,
    names,
    span_of,
    steps_in_short,
    steps_listed,
    steps_words,
    tokens_by_request,
)

_MAX_CHUNKS = 16
_MAX_GAPS = 5
_MAX_SHARED = 5
_MAX_BESIDE = 12


def first_token_sentence(answer: SlowAnswer) -> Line | None:
    """━ TTFT and its parts."""
    first = answer.first_token
    if first.first_token_step is None:
        return sentence("━", "It had no first token within the recording")
    in_all = first.first_token_step - first.arrival_step + 1
    parts: list[Part] = [strong("First token"), " at step ", step_span(first.first_token_step), ", "]
    if first.ttft_ns is not None:
        parts += ["TTFT ", figure(milliseconds(first.ttft_ns)), ": "]
        parts.append(
            f"template {milliseconds(first.template_ns)}, tokenization {milliseconds(first.tokenize_ns)}, "
            f"queue {milliseconds(first.queue_ns)} ({count(first.queue_steps, 'step')}), "
            f"prefill {milliseconds(first.prefill_ns)} in {count(first.prefill_steps, 'step')}"
        )
        if first.prefill_steps > 1:
            parts.append(f", between its chunks {milliseconds(first.between_chunks_ns)}")
        return sentence("━", *parts)
    parts += [figure(f"step {in_all} of its life"), ": "]
    parts.append(f"{first.queue_steps} in the queue, {first.prefill_steps} of prefill")
    if first.between_chunks_steps:
        parts.append(f", {first.between_chunks_steps} without a token in between")
    return sentence("━", *parts)


def gap_lines(request_id: str, answer: SlowAnswer) -> Iterator[Line]:
    """The worst gaps between two tokens, in parts."""
    slow = [gap for gap in answer.gaps if gap.total_ns is not None or gap.steps > 1 or gap.others_prefill_tokens]
    shown = slow[:_MAX_GAPS]
    if not shown:
        return
    if answer.basis != "no_clock":
        rows: list[list[Part]] = [
            [
                str(gap.index),
                span_of(gap.from_step + 1, gap.to_step),
                milliseconds(gap.total_ns),
                milliseconds(gap.own_ns),
                milliseconds(gap.others_prefill_ns),
                milliseconds(gap.preemption_ns),
                milliseconds(gap.skipped_ns),
                milliseconds(gap.pause_ns),
            ]
            for gap in shown
        ]
        header = ("token", "steps", "gap", "own", "prefill", "preempted", "skipped", "pause")
        yield from table(header, rows, right=tuple(range(2, 8)))
        usual = milliseconds(answer.usual_decode_ns)
        basis = f"beyond its usual decode step of {usual}" if answer.usual_decode_ns else "by share of the tokens"
        yield sentence("", dim(f"prefill: of others, {basis} (an estimate); worst of {answer.num_gaps} gaps"))
    for gap in shown:
        words = _gap_words(request_id, gap)
        if words:
            yield sentence("", f"token {gap.index}, ", *steps_words(gap.from_step + 1, gap.to_step), ": ", *words)


def _gap_words(request_id: str, gap: Gap) -> list[Part]:
    parts: list[Part] = []
    if gap.preempted_steps:
        parts.append(f"{count(gap.preempted_steps, 'step')} in the queue after it was preempted ")
        others = [key for key in gap.preempted_for if key != request_id]
        parts += ["for ", *names(others)] if others else ["by its own need"]
    if gap.recompute_steps:
        parts.append(f"{', ' if parts else ''}{count(gap.recompute_steps, 'step')} to compute again")
    if gap.skipped_steps:
        parts += [f"{', ' if parts else ''}{count(gap.skipped_steps, 'step')} without a token: "]
        parts += tokens_by_request(gap.skipped_because_of)
    if gap.others_prefill_tokens:
        parts += [", " if parts else "", "prefill beside it: ", *tokens_by_request(gap.others_prefill_tokens)]
    return parts


def shared_prefill_lines(answer: SlowAnswer) -> Iterator[Line]:
    """Whose prefill shared its steps, and how much of them it took."""
    shown = answer.shared_prefill[:_MAX_SHARED]
    rows: list[list[Part]] = []
    for shared in shown:
        low, high = min(shared.share_pct), max(shared.share_pct)
        percent = f"{low:g} %" if low == high else f"{low:g}–{high:g} %"
        row: list[Part] = [
            request(shared.request_id),
            str(len(shared.steps)),
            str(sum(shared.tokens)),
            percent,
            milliseconds(shared.added_ns),
            steps_listed(shared.steps),
        ]
        rows.append(row)
    if rows:
        yield from table(("request", "steps", "tokens", "of the step", "added", "which"), rows, right=(1, 2, 3, 4))
    if len(answer.shared_prefill) > _MAX_SHARED:
        yield sentence("", dim(f"… {len(answer.shared_prefill) - _MAX_SHARED} more"))


def beside_prefill_lines(answer: SlowAnswer) -> Iterator[Line]:
    """Whom its own prefill kept company, or waiting, where it took several steps."""
    if len(answer.first_token.chunks) < 2:
        return
    rows: list[list[Part]] = []
    for beside in answer.beside_prefill[:_MAX_BESIDE]:
        row: list[Part] = [request(beside.request_id)]
        for steps in (beside.shared_steps, beside.steps_without_budget):
            row += [str(len(steps)), steps_in_short(steps)] if steps else ["-", ""]
        rows.append(row)
    if rows:
        yield from table(("request", "shared", "steps", "no budget", "steps"), rows, right=(1, 3))
    if any(beside.steps_without_budget for beside in answer.beside_prefill):
        yield sentence("", dim("no budget: it waited while the budget of these steps was used up"))
    if len(answer.beside_prefill) > _MAX_BESIDE:
        yield sentence("", dim(f"… {len(answer.beside_prefill) - _MAX_BESIDE} more"))


def budget_sentences(answer: SlowAnswer) -> Iterator[Line]:
    """Steps in which the budget left nothing for it."""
    if answer.steps_skipped:
        yield sentence("╌", strong("Ran without a token"), f" in steps {steps_listed(answer.steps_skipped)}")


def chunk_lines(answer: SlowAnswer) -> Iterator[Line]:
    """Its own prefill, where it took several steps."""
    if len(answer.first_token.chunks) < 2:
        return
    rows: list[list[Part]] = [
        [str(chunk.step), str(chunk.tokens), str(chunk.step_total_tokens), f"{chunk.share_pct:g} %"]
        for chunk in answer.first_token.chunks[:_MAX_CHUNKS]
    ]
    yield from table(("step", "tokens", "of", "share"), rows, right=(0, 1, 2, 3))
