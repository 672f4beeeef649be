"""One step of a wait from near: tests, holders, who behind would have fitted, changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvscope.analysis.spans import Part, count, dim, figure, plain, request, strong
from kvscope.analysis.why.changes import Change
from kvscope.analysis.why.instant import AdmissionTest, Holder, WaitingInstant
from kvscope.analysis.why.layout import Line, Section, sentence, table
from kvscope.analysis.why.wait_records import Wait, WaitStep
from kvscope.analysis.why.words import failed_in_short, still_blocked, tokens_by_request

_MAX_HOLDERS = 12
_MAX_BEHIND = 8
_TEST_TITLES = {
    "no_preemption": "preemptions in the step",
    "budget_left": "tokens left in the step",
    "sequence_free": "sequences, with it",
    "at_the_head": "requests ahead of it",
    "prefix_lookup": "prefix lookup",
    "whole_prompt_in_budget": "prompt in one piece",
    "all_tokens_fit": "all its tokens fit",
    "first_chunk_fits": "first chunk fits",
}


def instant_sections(request_id: str, instant: WaitingInstant, waits: Sequence[Wait]) -> Iterator[Section]:
    """The step from near: tests, holders, who behind would have fitted, changes."""
    step = instant.step
    yield Section(f"THE ADMISSION TESTS AT STEP {step}, IN THE ORDER IN WHICH THEY RUN", tuple(_tests(instant)))
    row = next((row for wait in waits for row in wait.steps if row.step == step), None)
    if row is not None and row.stop == "budget":
        tokens = tokens_by_request(row.scheduled_tokens, _MAX_HOLDERS)
        yield Section(f"WHO GOT THE TOKENS OF STEP {step}", (sentence("", *tokens),))
    holders = "WHO RUNS" if _waits_for_no_blocks(instant) else "WHO HOLDS WHAT IT WAITS FOR"
    yield Section(f"{holders}, AT STEP {step}", tuple(_holders(instant.held_by)))
    if row is not None and row.needs_behind:
        yield Section(f"WHO BEHIND IT WOULD HAVE FITTED AT STEP {step}", tuple(_behind(row)))
    if instant.changes:
        title = f"WHAT WOULD HAVE ADMITTED IT AT STEP {step}, ONE CHANGE ALONE"
        yield Section(title, tuple(_changes(request_id, instant)))
    elif not instant.capacity.can_ever_fit:
        yield Section(f"CAN IT EVER BE ADMITTED, AT STEP {step}", tuple(_capacity(instant)))


def _waits_for_no_blocks(instant: WaitingInstant) -> bool:
    failed = next((test.name for test in instant.tests if test.was_reached and not test.passed), None)
    return failed in ("sequence_free", "budget_left", "whole_prompt_in_budget")


def _tests(instant: WaitingInstant) -> Iterator[Line]:
    if not instant.tests:
        yield sentence("✖", "the step failed before anybody was tested")
        return
    yield from table(
        ("", "test", "need", "have", "setting"),
        [_test_row(test) for test in instant.tests],
        right=(2, 3),
    )


def _test_row(test: AdmissionTest) -> list[Part]:
    glyph = "✓" if test.passed else "✗"
    if not test.was_reached:
        glyph = "·"
    note = test.setting
    if not test.was_reached:
        note = "not reached; it passes" if test.passed else "not reached; it fails too"
    if test.name == "prefix_lookup":
        glyph = "●" if test.have else glyph
        cost = f"; {count(test.free_hit_blocks, 'free block')} of it cost as new" if test.free_hit_blocks else ""
        return [glyph, "prefix lookup", "", str(test.have), dim("tokens hit" + cost)]
    need = f"{test.need}+{test.watermark_blocks}wm" if test.watermark_blocks else str(test.need)
    failed = test.was_reached and not test.passed
    title = _TEST_TITLES[test.name]
    return [
        glyph,
        strong(title) if failed else title,
        figure(need) if failed else need,
        figure(str(test.have)) if failed else str(test.have),
        dim(note),
    ]


def _holders(holders: Sequence[Holder]) -> Iterator[Line]:
    if not holders:
        yield sentence("", "nobody runs")
        return
    rows: list[list[Part]] = []
    for holder in holders[:_MAX_HOLDERS]:
        end = "ended in this step"
        if not holder.ended_in_this_step:
            end = f"at most {count(holder.tokens_to_its_end_at_most, 'token')} away"
            if holder.prefill_tokens_left:
                end += f", {holder.prefill_tokens_left} of prompt before"
        enough = {True: "yes", False: "no", None: "?"}[holder.is_enough]
        held, frees = str(holder.held_blocks), str(holder.frees_if_it_ends)
        rows.append([request(holder.request_id), held, frees, enough, end])
    yield from table(("request", "holds", "frees", "enough", "its end"), rows, right=(1, 2))
    if len(holders) > _MAX_HOLDERS:
        rest = holders[_MAX_HOLDERS:]
        yield sentence("", dim(f"… {len(rest)} more hold {sum(holder.held_blocks for holder in rest)}"))


def _behind(row: WaitStep) -> Iterator[Line]:
    needs = list(row.needs_behind.items())
    rows: list[list[Part]] = []
    for request_id, need in needs[:_MAX_BEHIND]:
        fits = request_id in row.fit_alone
        rows.append(
            [
                "✓" if fits else "✗",
                request(request_id),
                "-" if need is None else str(need),
                str(row.free),
                "held up by those ahead alone" if fits else dim(failed_in_short(row.failed_behind.get(request_id))),
            ]
        )
    yield from table(("", "request", "need", "free", ""), rows, right=(2, 3))
    if row.num_behind > _MAX_BEHIND:
        fit = sum(request_id in row.fit_alone for request_id, _ in needs[_MAX_BEHIND:])
        judged = "" if len(needs) == row.num_behind else f" of the next {len(needs) - _MAX_BEHIND}"
        yield sentence("", dim(f"… {row.num_behind - _MAX_BEHIND} more; {fit}{judged} would have fitted"))


def _changes(request_id: str, instant: WaitingInstant) -> Iterator[Line]:
    whole = {change.setting: change for change in instant.changes_from_start}
    rows: list[list[Part]] = []
    for change in sorted(instant.changes, key=lambda change: (not change.helps, not _helps(whole, change.setting))):
        row: list[Part] = [change.setting, _shown(change.now), _value(change)]
        if whole:
            row.append(_value(whole[change.setting]) if change.setting in whole else "")
        rows.append(row)
    header = ("setting", "recorded", "in this step", *(("from step 0 on",) if whole else ()))
    yield from table(header, rows)
    yield from _why_none_helps(request_id, instant.changes)
    inexact = [change.setting for change in instant.changes_from_start if not change.is_exact]
    if inexact:
        words = f"from step 0 on, {', '.join(inexact)}: by tokens that were made up beyond the recorded ones"
        yield sentence("", dim(words))
    if instant.num_shares_not_repeated:
        words = "what would have admitted it from step 0 on takes long to try: `kvscope why … --from-start` does it"
        yield sentence("", dim(words))
    yield from _capacity(instant)


def _helps(whole: dict[str, Change], setting: str) -> bool:
    return setting in whole and whole[setting].helps


def _why_none_helps(request_id: str, changes: Sequence[Change]) -> Iterator[Line]:
    """Says what stands in the way where no value helps in this step, the settings with one reason together."""
    settings: dict[str, list[str]] = {}
    for change in changes:
        blocked = change.still_blocked
        if not change.helps and (blocked is not None or change.note):
            words = plain(still_blocked(blocked, request_id)) if blocked is not None else change.note
            settings.setdefault(words, []).append(change.setting)
    for words, names_of_settings in settings.items():
        yield sentence("", dim(f"{', '.join(names_of_settings)}: {words}"))


def _capacity(instant: WaitingInstant) -> Iterator[Line]:
    capacity = instant.capacity
    if not capacity.can_ever_fit:
        yield sentence(
            "✗",
            strong("It can never get through"),
            f": its tokens fill {count(capacity.blocks_of_all_tokens, 'block')}, the pool has {capacity.pool}",
        )
    elif not capacity.can_finish_alone:
        yield sentence(
            "!",
            f"at its longest it fills {count(capacity.blocks_at_its_longest, 'block')}, more than the pool's "
            f"{capacity.pool}: it cannot finish unless it stops early",
        )


def _value(change: Change) -> Part:
    if not change.helps:
        return dim("none helps")
    extra = ""
    if change.watermark_blocks is not None:
        extra = f" ({count(change.watermark_blocks, 'block')})"
    elif change.difference is not None:
        extra = f" ({change.difference:+d})"
    return strong(f"{_shown(change.value)}{extra}")


def _shown(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
