"""The words on preemptions, on the prefix cache, and on where the time went."""

from __future__ import annotations

from collections.abc import Iterator

from kvscope.analysis.spans import Part, count, dim, figure, listed, request, strong
from kvscope.analysis.spans import step as step_span
from kvscope.analysis.text import truncate, visible
from kvscope.analysis.why.layout import Line, sentence, table
from kvscope.analysis.why.missed import Admission, Difference, MissedAnswer
from kvscope.analysis.why.preempted import PreemptedAnswer, PreemptionStory
from kvscope.analysis.why.slow import Gap, SlowAnswer
from kvscope.analysis.why.words import (
    MAX_NAMES,
    milliseconds,
    names,
    span_of,
    steps_listed,
    steps_words,
    tokens_by_request,
)

_MAX_STORIES = 3
_MAX_CHUNKS = 16
_MAX_GAPS = 5
_MAX_SHARED = 5
_MAX_ADMISSIONS = 4
_MAX_TEXT_CELLS = 30

_VICTIM_WORDS = {
    "last_admitted": "it was the last admitted (fcfs)",
    "least_urgent": "it was the least urgent (priority)",
    "least_urgent_first_admitted": "of the least urgent it was admitted first (priority)",
    "itself": "it was itself the next victim in line",
}


def cycle_sentence(answer: PreemptedAnswer) -> Iterator[Line]:
    """▲ Whether it goes round in a circle."""
    if answer.is_in_a_cycle:
        cycles = [r for r in answer.resumptions if r.resumed_step is not None and r.next_preempted_step is not None]
        gained = answer.output_tokens_gained_in_cycles
        again = sum(resumption.recomputed_tokens for resumption in cycles)
        yield sentence(
            "▲",
            strong("In a cycle: "),
            figure(f"{count(answer.resume_preempt_cycles, 'time')} resumed and preempted again"),
            f"; these runs computed {count(again, 'token')} a second time and gained {count(gained, 'token')}",
        )


def preemption_sentences(answer: PreemptedAnswer) -> Iterator[Line]:
    """▲ The first preemptions: for whom, why this victim, what was lost."""
    for story in answer.preemptions[:_MAX_STORIES]:
        yield sentence("▲", *_story_words(story))
    if len(answer.preemptions) > _MAX_STORIES:
        yield sentence("", dim(f"… {count(len(answer.preemptions) - _MAX_STORIES, 'more preemption')}"))


def _story_words(story: PreemptionStory) -> list[Part]:
    parts: list[Part] = [strong("Preempted"), " at step ", step_span(story.step), " "]
    if story.why_this_victim == "itself":
        parts.append("by its own need")
    else:
        parts += ["for ", request(story.by)]
    if story.by_needed_blocks is not None:
        verb = "which needed" if story.why_this_victim != "itself" else "it needed"
        parts += [f", {verb} ", figure(count(story.by_needed_blocks, "block")), f" with {story.free_blocks} free"]
    parts += [
        f"; {_VICTIM_WORDS[story.why_this_victim]} of {len(story.running)} running: ",
        figure(f"{story.blocks_freed} of {count(story.blocks_held, 'block')}"),
        " freed, ",
        figure(count(story.tokens_thrown_away, "token")),
        " thrown away",
    ]
    if story.tokens_returned:
        parts.append(dim(f"; {count(story.tokens_returned, 'token')} of the step went back to the budget"))
    if story.other_victims:
        parts += [dim("; in the same step also "), *names(story.other_victims)]
    return parts


def resumption_table(answer: PreemptedAnswer) -> Iterator[Line]:
    """What each way back cost and brought."""
    rows: list[list[Part]] = []
    for resumption in answer.resumptions:
        back = "never" if resumption.resumed_step is None else str(resumption.resumed_step)
        again = "-" if resumption.next_preempted_step is None else str(resumption.next_preempted_step)
        rows.append(
            [
                str(resumption.preempted_step),
                str(resumption.steps_waited),
                back,
                str(resumption.hit_tokens),
                str(resumption.recomputed_tokens),
                str(resumption.steps_run),
                str(resumption.output_tokens_gained),
                again,
            ]
        )
    header = ("preempted", "waited", "resumed", "hit", "again", "ran", "gained", "preempted next")
    yield from table(header, rows, right=tuple(range(8)))
    yield sentence(
        "",
        dim("steps; hit, again (computed a second time) and gained in tokens; "),
        f"{answer.recomputed_tokens} again",
    )


def cache_sentences(request_id: str, answer: MissedAnswer) -> Iterator[Line]:
    """● ○ Each admission's hit, and why it was not longer."""
    for admission in answer.admissions[:_MAX_ADMISSIONS]:
        yield sentence("●" if admission.hit_tokens else "○", *_admission_words(request_id, admission))
        if admission.difference is not None and admission.reason != "all_shared_hit":
            yield sentence("", *_difference_words(admission.difference))
    if len(answer.admissions) > _MAX_ADMISSIONS:
        yield sentence("", dim(f"… {count(len(answer.admissions) - _MAX_ADMISSIONS, 'more admission')}"))
    for duplicate in answer.duplicates[:_MAX_ADMISSIONS]:
        yield sentence(
            "",
            dim(
                f"its block {duplicate.block_index} was computed anew into block {duplicate.block_id}, "
                f"which doubles block {duplicate.duplicate_of} (step {duplicate.step})"
            ),
        )


def _admission_words(request_id: str, admission: Admission) -> list[Part]:
    verb = {"new": "Admitted", "resumed": "Resumed", "refused": "Looked up, refused,"}[admission.kind]
    hit = f"{admission.hit_tokens} of {count(admission.num_tokens, 'token')} hit"
    parts: list[Part] = [f"{verb} at step ", step_span(admission.step), ": ", figure(hit)]
    if admission.hit_tokens:
        owners = list(dict.fromkeys(publisher for publisher in admission.publishers if publisher))
        whose: list[Part] = ["its own" if owner == request_id else request(owner) for owner in owners]
        parts += [" in ", count(len(admission.hit_blocks), "block"), " of ", *listed(whose, MAX_NAMES)]
        if admission.own_hit_tokens and admission.others_hit_tokens:
            parts.append(dim(f" ({admission.own_hit_tokens} its own, {admission.others_hit_tokens} of others)"))
    if not admission.hits_hold_its_tokens:
        parts.append(strong("; THE HIT BLOCKS DO NOT HOLD ITS TOKENS"))
    return [*parts, "; ", *_miss_words(admission)]


def _miss_words(admission: Admission) -> list[Part]:
    match: list[Part] = [request(admission.best_match)] if admission.best_match is not None else ["no other"]
    shared = count(admission.shared_tokens, "token")
    lost = admission.lost
    match admission.reason:
        case "caching_off":
            return ["prefix caching is off"]
        case "nothing_shared":
            return ["nothing more is shared with any request" if admission.hit_tokens else "it shares no first token"]
        case "shorter_than_a_block":
            return ["it shares ", figure(shared), " with ", *match, ", less than one block"]
        case "all_shared_hit":
            return ["all that it shares with ", *match, f" ({shared})"]
        case "rest_shorter_than_a_block":
            return ["all whole blocks of the ", figure(shared), " that it shares with ", *match]
        case "last_token_must_be_computed":
            return [f"no more than {admission.cap} could be: its last token is always computed"]
        case "other_salt":
            salt = "none" if admission.other_salt is None else f"“{visible(admission.other_salt)}”"
            return [
                "its next block is cached, by ",
                request(admission.other_salt_id or ""),
                f" under cache salt {salt}",
            ]
        case "evicted" | "taken_back" if lost is not None:
            how: list[Part] = ["evicted"] if admission.reason == "evicted" else ["taken back"]
            if lost.lost_for is not None:
                how += [" for ", request(lost.lost_for)]
            return [
                f"its block {lost.block_index}, computed by ",
                request(lost.computed_by),
                f" at step {lost.published_step}, was ",
                *how,
                " at step ",
                step_span(lost.lost_step),
            ]
        case "not_computed_yet":
            return ["its next block is shared with ", *match, f" ({shared}), which had not computed it yet"]
        case _:
            return ["its next block is shared with ", *match, f" ({shared}), which ended before it was full"]


def _difference_words(difference: Difference) -> list[Part]:
    place = f"token {difference.token_position} (block {difference.block_index}, place {difference.position_in_block})"
    if difference.other_token_id is None:
        return [dim("there "), request(difference.other_id), dim(f" ends: {place}")]
    if difference.token_id is None:
        return []
    mine = truncate(visible(difference.text), _MAX_TEXT_CELLS)
    other = truncate(visible(difference.other_text), _MAX_TEXT_CELLS)
    return [
        f"first other token: {place}, {difference.token_id} against {difference.other_token_id}: ",
        f"“{mine}” against “{other}” of ",
        request(difference.other_id),
    ]


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
            f"prefill {milliseconds(first.prefill_ns)} in {count(first.prefill_steps, 'step')}, "
            f"between its chunks {milliseconds(first.between_chunks_ns)}"
        )
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
