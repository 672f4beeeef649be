"""An answer as sections of sentences and tables, the most useful first: for a screen, a terminal, an issue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvscope.analysis.detectors import Finding
from kvscope.analysis.spans import Part, count, dim, figure, request, strong
from kvscope.analysis.text import visible
from kvscope.analysis.why import cache_report, preempted_report, slow_report
from kvscope.analysis.why.answer import StepAnswer, WhyAnswer
from kvscope.analysis.why.instant_report import instant_sections
from kvscope.analysis.why.layout import Line, Section, sentence, table
from kvscope.analysis.why.overview import Overview, RequestLine
from kvscope.analysis.why.waiting_report import (
    more_waits,
    step_sentence,
    stretch_table,
    wait_sentences,
)
from kvscope.analysis.why.words import names, tokens_by_request

_MAX_REQUESTS = 24
_MAX_FINDINGS_OF_A_KIND = 3


def report(answer: WhyAnswer) -> list[Section]:
    """Returns what there is to say about a request. Empty sections are left out by whoever lays them out."""
    request_id = answer.request.request_id
    waits, instant = answer.waiting.waits, answer.waiting.instant
    sections = [Section("", tuple(_headline(answer)))]
    near = list(instant_sections(request_id, instant, waits)) if instant is not None else []
    if answer.asked_step is not None and near:
        sections += near
        near = []
    sections.append(Section("WHY", tuple(_why(answer))))
    if sum(len(wait.stretches) for wait in waits) > 1:
        sections.append(Section("HOW LONG IT HAS BEEN SO", tuple(stretch_table(waits))))
    sections += near
    if answer.preempted.resumptions:
        sections.append(Section("AFTER EACH PREEMPTION", tuple(preempted_report.resumption_table(answer.preempted))))
    sections.append(Section("ITS PREFILL", tuple(slow_report.chunk_lines(answer.slow))))
    sections.append(Section("BESIDE ITS PREFILL", tuple(slow_report.beside_prefill_lines(answer.slow))))
    sections.append(Section("OTHERS' PREFILL IN ITS STEPS", tuple(slow_report.shared_prefill_lines(answer.slow))))
    sections.append(Section("ITS WORST GAPS", tuple(slow_report.gap_lines(request_id, answer.slow))))
    return [section for section in sections if section.lines]


def _headline(answer: WhyAnswer) -> Iterator[Line]:
    row = answer.request
    parts: list[Part] = [
        request(row.request_id),
        f": {count(row.prompt_tokens, 'prompt token')}, {row.output_tokens} of at most {row.max_tokens} sampled; "
        f"arrived at step {row.arrival_step}",
    ]
    if answer.policy == "priority" or row.priority:
        parts.append(f", priority {row.priority}")
    if row.cache_salt is not None:
        parts.append(f", cache salt “{visible(row.cache_salt)}”")
    if row.lora_name is not None:
        parts.append(f", adapter “{visible(row.lora_name)}”")
    if row.finished_step is not None:
        parts.append(f"; ended at step {row.finished_step} ({row.finish_reason})")
    else:
        parts.append(f"; still there at step {answer.num_steps - 1}, the last that was read")
    yield sentence("·", *parts)
    if answer.at is not None:
        yield sentence("·", *_at_words(answer.at))
        for wait in answer.waiting.waits:
            yield from (step_sentence(row) for row in wait.steps if row.step == answer.at.step)


def _at_words(at: StepAnswer) -> list[Part]:
    doing = {
        "waiting": "it waits",
        "preempted": "it waits, preempted",
        "prefill": f"it computes {count(at.scheduled_tokens, 'token')} of its prompt",
        "decode": f"it decodes with {count(at.scheduled_tokens, 'token')}",
        "nothing": "it runs and gets nothing",
        "ended": "it ended before the step was scheduled",
    }[at.doing]
    parts: list[Part] = [strong(f"At step {at.step} {doing}")]
    parts.append(dim(f"; the step computes {at.step_total_tokens} of {count(at.token_budget, 'token')}"))
    if at.others_prefill_tokens:
        parts += [", prefill beside it: ", *tokens_by_request(at.others_prefill_tokens)]
    if at.tokens_of_others:
        parts += ["; it went to ", *tokens_by_request(at.tokens_of_others)]
    return parts


def _why(answer: WhyAnswer) -> Iterator[Line]:
    yield from preempted_report.cycle_sentence(answer.preempted)
    yield from wait_sentences(answer.request.request_id, answer.waiting.waits)
    yield from more_waits(answer.waiting.waits)
    yield from preempted_report.preemption_sentences(answer.preempted)
    if answer.missed is None:
        yield sentence("…", dim("what the prefix cache held for it is being read, from the first step on"))
    else:
        yield from cache_report.cache_sentences(answer.request.request_id, answer.missed)
    first = slow_report.first_token_sentence(answer.slow)
    if first is not None:
        yield first
    yield from slow_report.budget_sentences(answer.slow)


def overview_report(answer: Overview, findings: Sequence[Finding]) -> list[Section]:
    """Returns the run as a whole: what the detectors found, and a row for each request."""
    lines = list(_finding_lines(findings)) or [sentence("✓", "the detectors found nothing")]
    return [
        Section("WHAT STANDS OUT", tuple(lines)),
        Section("REQUESTS", tuple(_request_lines(answer))),
        Section("PREFIX CACHE", tuple(_cache_lines(answer))),
    ]


def _finding_lines(findings: Sequence[Finding]) -> Iterator[Line]:
    """The worst of each kind, and how many more there are of it."""
    for kind in dict.fromkeys(finding.kind for finding in findings):
        of_kind = sorted((f for f in findings if f.kind == kind), key=lambda finding: -finding.num_steps)
        for finding in of_kind[:_MAX_FINDINGS_OF_A_KIND]:
            yield Line(finding.sentence.spans, finding.sentence.glyph)
        if len(of_kind) > _MAX_FINDINGS_OF_A_KIND:
            more = of_kind[_MAX_FINDINGS_OF_A_KIND:]
            words = f"… {count(len(more), 'more of this kind', 'more of this kind')}, e.g. "
            yield sentence("", dim(words), *names([finding.request_ids[0] for finding in more if finding.request_ids]))


def _request_lines(answer: Overview) -> Iterator[Line]:
    rows: list[list[Part]] = [
        [
            request(row.request_id),
            str(row.arrival_step),
            "-" if row.first_admitted_step is None else str(row.first_admitted_step),
            str(row.waited_steps_in_all),
            str(len(row.preemptions)),
            str(row.recomputed_tokens),
            str(row.own_hit_tokens),
            str(row.others_hit_tokens),
            "-" if row.finished_step is None else str(row.finished_step),
        ]
        for row in _told(answer)
    ]
    header = ("request", "arrived", "admitted", "waited", "preempted", "again", "own", "others", "ended")
    yield from table(header, rows, right=tuple(range(1, 9)))
    if len(answer.requests) > _MAX_REQUESTS:
        more = len(answer.requests) - _MAX_REQUESTS
        yield sentence("", dim(f"… {more} more that waited less and computed less twice (--json has all)"))
    yield sentence("", dim("arrived … waited, ended: steps; again: tokens computed twice; own, others: hit tokens"))


def _told(answer: Overview) -> list[RequestLine]:
    """Returns the rows that are shown, by arrival: all, or those with most tokens computed twice and most waiting."""
    if len(answer.requests) <= _MAX_REQUESTS:
        return list(answer.requests)
    worst = sorted(answer.requests, key=lambda row: (-row.recomputed_tokens, -row.waited_steps_in_all))
    chosen = {row.request_id for row in worst[:_MAX_REQUESTS]}
    return [row for row in answer.requests if row.request_id in chosen]


def _cache_lines(answer: Overview) -> Iterator[Line]:
    hits = answer.hits
    parts: list[Part] = [
        figure(count(hits.total_hit_tokens, "token")),
        f" hit: {hits.cross_hit_tokens} in blocks of others, {hits.self_hit_tokens} in their own after preemptions",
    ]
    counters = hits.engine_counters
    if counters.preempted_hits:
        parts.append(
            dim(
                f"; the engine's counters say {counters.hits} and, of preempted requests, {counters.preempted_hits}, "
                f"of which {hits.cross_tokens_inside_preempted_hits} were others' all the same"
            )
        )
    yield sentence("●" if hits.total_hit_tokens else "○", *parts)
    if answer.most_preempted is not None:
        yield sentence("▲", count(answer.num_preemptions, "preemption"), ", most of ", *names([answer.most_preempted]))
