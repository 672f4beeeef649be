"""The words on a request's waits: each in a sentence, its stretches in a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvscope.analysis.spans import Part, count, dim, figure, request, strong
from kvscope.analysis.spans import step as step_span
from kvscope.analysis.why.layout import Line, sentence, table
from kvscope.analysis.why.wait_records import LetIn, Stretch, Wait, WaitStep
from kvscope.analysis.why.words import (
    BLOCK_TESTS,
    TEST_NAMES,
    TOKEN_TESTS,
    names,
    span_of,
    steps_listed,
    steps_words,
)

_MAX_WAITS = 4
_MAX_FITTED = 4
_MAX_STRETCHES = 12


def wait_sentences(request_id: str, waits: Sequence[Wait]) -> Iterator[Line]:
    """✗ The longest waits: how long, on which test, who let it in, who of lower priority ran meanwhile."""
    longest = sorted(waits, key=lambda wait: (wait.ended is not None, -wait.waited_steps))[:_MAX_WAITS]
    for wait in longest:
        yield sentence("✗", *_wait_words(request_id, wait))
        if wait.fitted_behind and any(stretch.is_head for stretch in wait.stretches):
            yield sentence("↳", "meanwhile ", *_fitted_words(wait), " would have fitted")
        ran = wait.lower_priority_ran
        if ran.steps:
            yield sentence(
                "▲",
                strong("Priority inversion"),
                f" in steps {steps_listed(ran.steps)}: ",
                *names(ran.request_ids),
                " of lower priority",
                dim(f" ({span_of(min(ran.priorities), max(ran.priorities))})"),
                " ran and sampled ",
                figure(count(ran.sampled_tokens, "token")),
            )


def _fitted_words(wait: Wait) -> list[Part]:
    """Returns who behind it would have fitted, in which steps, those of most steps first."""
    rows = sorted(wait.fitted_behind.items(), key=lambda item: -len(item[1]))
    parts: list[Part] = []
    for request_id, steps in rows[:_MAX_FITTED]:
        parts += [", " if parts else "", request(request_id), f" ({steps_listed(steps)})"]
    if len(rows) > _MAX_FITTED:
        parts.append(f" and {count(len(rows) - _MAX_FITTED, 'other')}")
    return parts


def more_waits(waits: Sequence[Wait]) -> Iterator[Line]:
    """Says how many waits were not told one by one."""
    if len(waits) > _MAX_WAITS:
        yield sentence("", dim(f"… {count(len(waits) - _MAX_WAITS, 'shorter wait')} (see the table)"))


def _wait_words(request_id: str, wait: Wait) -> list[Part]:
    how = "waited" if wait.ended is not None else "waits"
    parts: list[Part] = [
        strong(f"{'Preempted, then ' if wait.kind == 'preempted' else ''}{how} {count(wait.waited_steps, 'step')}"),
        " (",
        *steps_words(wait.since_step, wait.last_step),
        "): ",
    ]
    longest = sorted(wait.stretches, key=lambda stretch: (stretch.reason == "preempted", -stretch.num_steps))
    parts += _stretch_words(longest[0])
    if len(longest) > 1:
        parts.append(dim(f", and {_other_steps(longest[1:])}"))
    if wait.let_in_by is not None:
        parts += ["; ", *_let_in_words(wait, wait.let_in_by)]
    elif wait.ended == "aborted":
        parts += [f"; it was aborted at step {wait.ended_step}"]
    else:
        parts.append("; it still waits at the last step that was read")
    if wait.overtaken_by:
        parts += ["; overtaken by ", *names(wait.overtaken_by)]
    return parts


def _other_steps(stretches: Sequence[Stretch]) -> str:
    """Returns what failed in the steps beside the longest stretch: `1 other step: a preempting step admits no one`."""
    steps: dict[str, int] = {}
    for stretch in stretches:
        words = "the step failed" if stretch.reason is None else TEST_NAMES[stretch.reason]
        steps[words] = steps.get(words, 0) + stretch.num_steps
    return ", ".join(f"{count(num_steps, 'other step')}: {words}" for words, num_steps in steps.items())


def step_sentence(row: WaitStep) -> Line:
    """✗ Why it was not admitted in one step: the recorded refusal, of itself or of the head that it is behind."""
    need = (row.head_need, row.head_need)
    stretch = Stretch(
        first_step=row.step,
        last_step=row.step,
        reason=row.stop,
        head_id=row.head_id,
        is_head=row.position == 0,
        need=need,
        have=(row.head_have, row.head_have),
        watermark_blocks=row.head_watermark,
    )
    parts: list[Part] = [strong("Not admitted: "), *_stretch_words(stretch)]
    if row.position:
        place = f"; it is {count(row.position, 'place')} behind the head"
        if row.need is not None:
            place += f", needs {count(row.need, 'block')} itself and would{' not' if row.reason else ''} have fitted"
        parts.append(place)
    return sentence("✗", *parts)


def _stretch_words(stretch: Stretch) -> list[Part]:
    parts: list[Part] = [] if stretch.is_head else ["behind ", request(stretch.head_id), ", which "]
    it = "it " if stretch.is_head else ""
    wm = f"+{stretch.watermark_blocks}" if stretch.watermark_blocks else ""
    need, have = span_of(*stretch.need), span_of(*stretch.have)
    match stretch.reason:
        case "full_isl" | "full_isl_watermark" | "blocks" | "watermark":
            what = TEST_NAMES[stretch.reason].removeprefix("blocks ")
            return [*parts, it + "needed ", figure(f"{need}{wm} blocks"), f" {what}, ", figure(have), " were free"]
        case "max_num_seqs":
            seqs = "" if not parts else "found "
            taken = (
                [seqs + "every one of ", figure(f"{have} sequences")] if have != "1" else [seqs + "the only sequence"]
            )
            return [*parts, *taken, " taken", dim(" (max_num_seqs)")]
        case "chunked_prefill_off" | "spec_pad_budget":
            return [*parts, it + "needed ", figure(f"{need} tokens"), " in one piece, ", figure(have), " were left"]
        case "budget":
            return [*parts, "found the token budget used up" if parts else "the token budget was used up"]
        case None:
            return [*parts, "the step failed before admissions"]
        case reason:
            return [*parts, f"was refused: {TEST_NAMES[reason]}" if parts else TEST_NAMES[reason]]


def _let_in_words(wait: Wait, let_in: LetIn) -> list[Part]:
    parts: list[Part] = []
    causes: list[Part] = []
    if let_in.finished:
        causes += [*names(let_in.finished), " finished at step ", step_span(let_in.step)]
    if let_in.aborted:
        causes += [" and " if causes else "", *names(let_in.aborted), " aborted"]
    if causes and let_in.reason == "max_num_seqs":
        left = len(let_in.finished) + len(let_in.aborted)
        causes.append(" and left its place in the batch" if left == 1 else " and left their places in the batch")
    elif causes and let_in.freed_blocks and let_in.reason not in TOKEN_TESTS:
        causes.append(f" and gave {count(let_in.freed_blocks, 'block')} back")
    if let_in.admitted_before:
        causes += ["; " if causes else "", *names(let_in.admitted_before), " went before it"]
    if not causes or let_in.reason in TOKEN_TESTS:
        causes += ["; " if causes else "", _let_in_by_nobody(let_in)]
    parts += causes
    parts += [f": {wait.ended} at step ", step_span(wait.ended_step if wait.ended_step is not None else -1)]
    if let_in.reason in (*BLOCK_TESTS, "preempted"):
        parts.append(dim(f" with {let_in.free_before_admission} free, of which it took {let_in.taken_blocks}"))
    return parts


def _let_in_by_nobody(let_in: LetIn) -> str:
    """Says what let it in where nobody else's end did."""
    if let_in.reason in TOKEN_TESTS:
        return f"{count(let_in.token_budget_left, 'token')} of the next step were left for it"
    if let_in.reason == "preempted":
        return "the next step preempted nobody"
    return "blocks came free otherwise"


def stretch_table(waits: Sequence[Wait]) -> Iterator[Line]:
    """Which test failed in which steps."""
    stretches = [stretch for wait in waits for stretch in wait.stretches]
    rows: list[list[Part]] = []
    for stretch in stretches[:_MAX_STRETCHES]:
        wm = f"+{stretch.watermark_blocks}wm" if stretch.watermark_blocks else ""
        reason = stretch.reason
        has_figures = reason not in (None, "preempted", "budget", "policy", "other")
        rows.append(
            [
                span_of(stretch.first_step, stretch.last_step),
                request(stretch.head_id) if not stretch.is_head else "itself",
                f"{span_of(*stretch.need)}{wm}" if has_figures else "",
                span_of(*stretch.have) if has_figures else "",
                TEST_NAMES[reason] if reason is not None else "the step failed before admissions",
            ]
        )
    yield from table(("steps", "head", "need", "have", "what failed"), rows, right=(2, 3))
    if len(stretches) > _MAX_STRETCHES:
        yield sentence("", dim(f"… {len(stretches) - _MAX_STRETCHES} more stretches (--json has all)"))
