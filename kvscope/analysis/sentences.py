"""Every decision of a step as a sentence with its figures, in the order of their weight.

All figures come from recorded events and from the state that follows from them. Pure: no screen, no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvscope import events as ev
from kvscope.analysis import admission_sentences, block_sentences, queue_sentences, token_sentences
from kvscope.analysis.memory import remembered
from kvscope.analysis.spans import Part, Sentence, Span, count, dim, figure, say, strong
from kvscope.analysis.step_facts import StepFacts
from kvscope.analysis.text import visible
from kvscope.replay.timeline import Moment, Timeline

_NS_PER_MS = 1e6
_MAX_DRAFT_GROUPS = 3


def sentences(timeline: Timeline, moment: Moment) -> list[Sentence]:
    """Returns what was decided in the step: failure ▲ ✗ ●/→ ◆ ✓ ≈ + = ↓, then what was published; never empty."""
    facts = remembered(timeline).facts(moment)
    said = [
        *_failure(facts),
        *_stall(moment, facts),
        *queue_sentences.preemptions(moment),
        *block_sentences.unpublished(moment),
        *queue_sentences.refusal(timeline, moment),
        *queue_sentences.rejections(moment),
        *admission_sentences.admissions(timeline, moment),
        *block_sentences.evictions(moment),
        *block_sentences.ends(moment),
        *token_sentences.drafts(moment),
        *token_sentences.prefills(timeline, moment),
        *block_sentences.allocations(moment),
        *token_sentences.unused_budget(facts),
        *queue_sentences.got_nothing(timeline, moment),
        *queue_sentences.arrivals(moment),
        *block_sentences.transfers(moment),
        *block_sentences.publications(moment),
        *_configuration(moment),
    ]
    return said or [_quiet(moment, facts)]


def step_title(timeline: Timeline, moment: Moment) -> tuple[Span, ...]:
    """Returns the step in one line: `7 of 64 tokens = 7×1 decode + 57 left · 0.6 ms + 7.5 ms forward`."""
    facts = remembered(timeline).facts(moment)
    if facts.started is None:
        return say(dim("no schedule in this step"))
    parts: list[Part] = [strong(str(facts.num_scheduled_tokens)), f" of {count(facts.token_budget, 'token')}"]
    terms = _budget_terms(facts)
    left = facts.token_budget - facts.num_scheduled_tokens
    if facts.shares:
        parts.append(" = ")
        for term in terms:
            parts += [*term, " + "]
        parts += [strong(str(left)), " left"]
    else:
        parts.append(" scheduled")
    parts += _clock(facts)
    return say(*parts)


def _budget_terms(facts: StepFacts) -> list[list[Part]]:
    """Returns decode, decode with drafts, and prefill, as far as there is any."""
    num_plain = 0
    with_drafts: Counter[int] = Counter()
    prefill: list[int] = []
    for share in facts.shares.values():
        if share.is_prefill and not share.num_draft_tokens:
            prefill.append(share.num_tokens)
        elif share.num_draft_tokens:
            with_drafts[share.num_tokens] += 1
        else:
            num_plain += 1
    terms: list[list[Part]] = []
    if num_plain:
        terms.append([strong(f"{num_plain}×1"), " decode"])
    if len(with_drafts) <= _MAX_DRAFT_GROUPS:
        terms += [[strong(f"{number}×{size}"), " draft"] for size, number in sorted(with_drafts.items(), reverse=True)]
    else:
        total = sum(size * number for size, number in with_drafts.items())
        terms.append([strong(str(total)), f" draft of {with_drafts.total()} requests"])
    if prefill:
        of = f" of {len(prefill)} requests" if len(prefill) > 1 else ""
        terms.append([strong(str(sum(prefill))), f" prefill{of}"])
    return terms


def _clock(facts: StepFacts) -> list[Part]:
    if facts.failed is not None:
        return [dim(" · "), strong(f"failed in {facts.failed.phase}")]
    clock = facts.finished
    if clock is None or not (clock.schedule_ns or clock.forward_ns):
        return []
    rest_ns = clock.schedule_ns + clock.sample_ns + clock.update_ns
    return [dim(f" · {milliseconds(rest_ns)} + {milliseconds(clock.forward_ns)} forward")]


def milliseconds(duration_ns: int) -> str:
    """Returns a duration as `7.5 ms`; from 100 ms on without a fraction."""
    value = duration_ns / _NS_PER_MS
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def _failure(facts: StepFacts) -> Iterator[Sentence]:
    if facts.failed is not None:
        failed = facts.failed
        yield Sentence(
            "✖",
            "failed",
            say(
                strong(f"The step failed in {failed.phase}:"),
                f" {visible(failed.error_type)}: ",
                figure(visible(failed.message)),
                dim("; the engine stopped"),
            ),
        )


def _stall(moment: Moment, facts: StepFacts) -> Iterator[Sentence]:
    """A step that scheduled nothing while something waited, and did not fail."""
    ended = facts.admission_ended
    if facts.failed is None and ended is not None and not facts.shares and ended.num_waiting:
        running = len(moment.state.running) + len(facts.late_ends)
        yield Sentence(
            "!",
            "stalled",
            say(
                strong("Nothing was scheduled:"),
                f" {ended.num_waiting} {'waits' if ended.num_waiting == 1 else 'wait'}, ",
                f"{running or 'none'} {'runs' if running == 1 else 'run'}",
            ),
        )


def _configuration(moment: Moment) -> Iterator[Sentence]:
    for event in moment.events:
        if isinstance(event, ev.EngineConfigured):
            batched = int(event.settings.get("max_num_batched_tokens") or 0)
            budget = min(int(event.settings.get("max_num_scheduled_tokens") or batched), batched)
            seqs = event.settings.get("max_num_seqs")
            yield Sentence(
                "·",
                "note",
                say(
                    f"{visible(event.model)} on {visible(event.device)} ({visible(event.dtype)}): ",
                    figure(f"{max(event.num_gpu_blocks - 1, 0)} blocks × {event.block_size} tokens"),
                    f", budget {count(budget, 'token')}, {count(int(seqs or 0), 'sequence')}",
                ),
            )


def _quiet(moment: Moment, facts: StepFacts) -> Sentence:
    num_served = len(facts.shares)
    if num_served == 0:
        return Sentence("·", "note", say(dim("Nothing to do: nobody runs and nobody waits")))
    who = "The running request" if num_served == 1 else f"All {num_served} running requests"
    return Sentence("·", "note", say(dim(f"{who} went on; nobody waits, no block changed hands")))
