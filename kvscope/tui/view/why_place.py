"""The lines of the place "why": the answer, the admission tests, who holds what is missing, who would have fitted, what
would have helped. All of a request that waits; `kvscope.tui.view.why_history` has how long it has been so.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import count, plain, wrap
from kvscope.analysis.text import cell_width, visible
from kvscope.analysis.why.changes import Change
from kvscope.analysis.why.here import Outlook, WaitingHere
from kvscope.analysis.why.here_report import answer_words, behind_words, change_words, is_blocks_test
from kvscope.analysis.why.instant import AdmissionTest, Holder
from kvscope.analysis.why.words import failed_in_short
from kvscope.tui.view.entries import Entry, heading
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import (
    EMPTY,
    WORD_ROLES,
    Line,
    Span,
    cut_line,
    fit,
    line_width,
    pad,
    pad_line,
    request_target,
    sentence_line,
)

INDENT = 3
MAX_ID_CELLS = 16
MAX_BAR = 12

BAD = {**WORD_ROLES, "strong": "bold bad"}

TEST_TITLES = {
    "no_preemption": "preemptions in this step",
    "budget_left": "tokens left in the step",
    "sequence_free": "sequences running",
    "prefix_lookup": "prefix lookup",
    "whole_prompt_in_budget": "prompt in one piece",
    "all_tokens_fit": "all its tokens fit",
    "first_chunk_fits": "first chunk fits",
}


def glyph_rows(glyph: str, role: str, words: Sequence[WordSpan], width: int) -> list[Line]:
    """Returns a sentence wrapped behind its glyph; what carries it bears the colour of the glyph."""
    lines: list[Line] = []
    roles = BAD if role == "bad" else WORD_ROLES
    for index, row in enumerate(wrap(words, max(width - INDENT, 8))):
        head = Span(f" {glyph} ", f"bold {role}") if index == 0 else Span(" " * INDENT)
        lines.append((head, *sentence_line(row, roles)))
    return lines


def answer_lines(here: WaitingHere, since_step: int, width: int, height: int, *, is_longer: bool) -> list[Line]:
    """Returns the answer in at most `height` lines: whom it is behind, then why the head was not admitted."""
    lines: list[Line] = []
    if not here.is_head:
        lines += glyph_rows("↳", "dim", behind_words(here), width)
    lines += glyph_rows("✗", "bad", answer_words(here, since_step, is_longer=is_longer), width)
    if len(lines) > height:
        lines = [*lines[: height - 1], cut_line((*lines[height - 1], Span(" …"), Span(" " * width)), width)]
    return lines


# --- the tests --------------------------------------------------------------------------------------------------------


def test_lines(here: WaitingHere, width: int, glyphs: Glyphs) -> list[Line]:
    """Returns a line for each test, in the order in which they ran: what it needed, what there was, its setting."""
    if not here.tests:
        return [(Span("   no test ran in this step", "dim"),)]
    narrow = width < 100
    title_width, figure_width, compared_width = (24, 10, 12) if narrow else (32, 11, 17)
    compared_width = max(compared_width, *(cell_width(_test_words(test, here)[1]) + 3 for test in here.tests))
    room = width - INDENT - title_width - figure_width - compared_width
    lines: list[Line] = []
    for test in here.tests:
        glyph, role = _test_glyph(test, glyphs)
        failed = test.was_reached and not test.passed
        figure, compared, *notes = _test_words(test, here)
        note = next((note for note in notes if cell_width(note) <= room), notes[-1])
        words = "bold" if failed else "text" if test.was_reached else "dim"
        lines.append(
            cut_line(
                (
                    Span(f" {glyph} ", f"bold {role}"),
                    Span(pad(TEST_TITLES[test.name], title_width), words),
                    Span(f"{figure:>{figure_width}}", words),
                    Span(pad(f"  {compared}", compared_width), "bold bad" if failed else "dim"),
                    Span(note, "text" if failed else "dim"),
                ),
                width,
            )
        )
    return lines


def _test_glyph(test: AdmissionTest, glyphs: Glyphs) -> tuple[str, str]:
    if test.name == "prefix_lookup" and test.was_reached:
        return (glyphs.hit, "hit") if test.have else ("○", "dim")
    if not test.was_reached:
        return "·", "dim"
    return (glyphs.passed, "hit") if test.passed else ("✗", "bad")


def _test_words(test: AdmissionTest, here: WaitingHere) -> tuple[str, ...]:
    """Returns figure, comparison and remarks, the longest first: the first one that fits is shown."""
    need, have = test.need, test.have
    remarks: tuple[str, ...] = ("",)
    match test.name:
        case "no_preemption":
            figure, compared = str(have), "= 0"
            remarks = (", ".join(map(visible, here.victims)), "")
        case "budget_left":
            figure, compared = str(have), "> 0"
            remarks = (f"{test.setting} {here.token_budget}",)
        case "sequence_free":
            figure, compared = str(need - 1), f"< {have}"
            remarks = (f"{test.setting} {have}",)
        case "prefix_lookup":
            figure, compared = f"{have} tokens", ""
            number = test.free_hit_blocks
            if number:
                remarks = (
                    f"{count(number, 'block')} of it in the free queue: each costs one",
                    f"{count(number, 'block')} of it cost one each",
                )
        case "whole_prompt_in_budget":
            figure, compared = str(need), f"≤ {have} left"
            remarks = (f"{test.setting} off",)
        case _:
            watermark = f" + {test.watermark_blocks} wm" if test.watermark_blocks else ""
            figure, compared = f"{need}{watermark}", f"≤ {have} free"
            short = f"{need + test.watermark_blocks - have} short"
            remarks = (f"{short} ({test.setting})", short) if test.setting else (short,)
            if test.passed:
                remarks = (test.setting,)
    if not test.was_reached:
        remarks = ("not reached; passes",) if test.passed else ("not reached; would have failed too", "fails too")
    return figure, compared, *remarks


# --- holders ----------------------------------------------------------------------------------------------------------


def holder_title(here: WaitingHere) -> Line:
    """Returns what stands at the right of the holders' title."""
    held = sum(holder.frees_if_it_ends for holder in here.held_by)
    return (Span(f"{held} of {here.capacity.pool} blocks theirs alone", "dim"),)


def holder_entries(here: WaitingHere, outlook: Outlook | None, width: int, glyphs: Glyphs) -> list[Entry]:
    """Returns who runs, by what it holds; each is a jump. `outlook` is None while it is being worked out."""
    if not here.held_by:
        return [heading((Span("   nobody runs", "dim"),))]
    id_width = min(max(cell_width(visible(holder.request_id)) for holder in here.held_by), MAX_ID_CELLS)
    is_short = width < 54
    units = (" tokens away",) if not is_short else (" tok", "")
    for unit in units:
        ends = [_end(holder, unit) for holder in here.held_by]
        end_width = max(map(cell_width, ends))
        if 24 + id_width + end_width <= width:
            break
    has_held = 24 + id_width + end_width <= width  # what it holds yields where ids are long: what it frees says more
    bar_width = 0 if is_short else max(min(width - id_width - end_width - 24, MAX_BAR), 0)
    most = max(max(holder.frees_if_it_ends for holder in here.held_by), 1)
    head = f" {pad('request', id_width)} {'holds':>5}  " if has_held else f" {pad('request', id_width)} "
    head += f"{pad('frees', bar_width + 5)} enough  " + ("its end" if not is_short else "end in" if unit else "tokens")
    entries = [heading((Span(fit(head, width), "dim"),))]
    for holder, end in zip(here.held_by, ends, strict=True):
        bar = glyphs.life_decode * round(holder.frees_if_it_ends * bar_width / most)
        enough, role = _enough(holder, outlook)
        line: Line = (
            Span(f" {pad(fit(visible(holder.request_id), id_width), id_width)} ", "bold"),
            Span(f"{holder.held_blocks:>5}  " if has_held else ""),
            Span(bar.ljust(bar_width), "live"),
            Span(f"{holder.frees_if_it_ends:>4}  "),
            Span(pad(enough, 8), role),
            Span(end, "dim"),
        )
        entries.append(Entry((line,), request_target(holder.request_id)))
    return entries


def _enough(holder: Holder, outlook: Outlook | None) -> tuple[str, str]:
    if outlook is None:
        return "…", "dim"
    is_enough = outlook.is_enough.get(holder.request_id)
    return ("?", "dim") if is_enough is None else ("enough", "hit") if is_enough else ("no", "dim")


def _end(holder: Holder, unit: str) -> str:
    """Returns how far its end is at most, its prompt and its output apart."""
    if holder.ended_in_this_step:
        return "ended in this step" if unit == " tokens away" else "now"
    prefill = f"{holder.prefill_tokens_left}+" if holder.prefill_tokens_left else ""
    return f"≤{prefill}{holder.tokens_to_its_end_at_most:>3}{unit}"


# --- who behind it would have fitted, and what would have helped ------------------------------------------------------


def behind_entries(here: WaitingHere, width: int, glyphs: Glyphs) -> list[Entry]:
    """Returns those behind the head with what they need; each is a jump."""
    row = here.row
    entries: list[Entry] = []
    id_width = min(max((cell_width(visible(key)) for key in row.needs_behind), default=0), MAX_ID_CELLS)
    watermark = f" + {row.watermark}" if row.watermark else ""
    for request_id, need in row.needs_behind.items():
        fits = request_id in row.fit_alone
        figure = "?" if need is None else f"{need:>3}{watermark} {'≤' if need + row.watermark <= row.free else '>'}"
        note = "blocked by the head alone" if fits else failed_in_short(row.failed_behind.get(request_id))
        on = "selected" if request_id == here.asked.request_id else ""
        line: Line = (
            Span(f" {glyphs.passed} " if fits else " ✗ ", "bold hit" if fits else "dim"),
            Span(pad(fit(visible(request_id), id_width), id_width), "bold", on),
            Span(f"  need {figure} {row.free}  "),
        )
        if line_width(line) + len(note) <= width:
            line = (*line, Span(note, "dim"))
        entries.append(Entry((line,), request_target(request_id)))
    if row.num_behind > len(row.needs_behind):
        more = row.num_behind - len(row.needs_behind)
        entries.append(heading((Span(f"   {count(more, 'more')} behind, not judged", "dim"),)))
    return entries or [heading((Span("   nobody is behind it", "dim"),))]


def change_entries(here: WaitingHere, outlook: Outlook | None, width: int) -> list[Entry]:
    """Returns the smallest change of each setting that admits it in this step: those that help first."""
    if outlook is None:
        return [heading((Span("   the step is being run again …", "dim"),))]
    if not outlook.head_changes:
        return [heading((Span("   this step cannot be run again", "dim"),))]
    entries = _changes(outlook.head_changes, here.head.request_id, width)
    if not here.is_head:
        asked = here.asked.request_id
        entries += [heading(EMPTY), heading(_admits(asked, width)), *_changes(outlook.changes, asked, width)]
    return entries


def _admits(request_id: str, width: int) -> Line:
    return cut_line((Span(" and ", "dim"), Span(visible(request_id), "bold", "", request_target(request_id))), width)


def _changes(changes: Sequence[Change], request_id: str, width: int) -> list[Entry]:
    name_width = 29 if width >= 56 else 16
    entries: list[Entry] = []
    others: dict[str, list[str]] = {}
    for change in changes:
        value, note = change_words(change, request_id)
        if not change.helps:
            others.setdefault(plain(note).removeprefix(": "), []).append(change.setting)
            continue
        line = (Span(f" {pad(fit(change.setting, name_width), name_width)} "), *sentence_line(value), Span("  "))
        entries.append(heading(cut_line((*line, *sentence_line(note)), width)))
    for why, settings in others.items():
        words = [WordSpan(f"no value of {', '.join(settings)} helps{f': {why}' if why else ''}", "dim")]
        lines = tuple((Span(" "), *sentence_line(row)) for row in wrap(words, width - 1))
        entries.append(Entry(lines))
    return entries


def missing_title(here: WaitingHere) -> str:
    """Returns how the list of the running requests is called."""
    return "WHO HOLDS WHAT IT WAITS FOR" if is_blocks_test(here) else "WHO RUNS"


def question_line(request_id: str, doing: str, width: int, *, is_waiting: bool) -> Line:
    """Returns what the place answers."""
    words: Line = (
        Span(" Why " if is_waiting else " "),
        Span(visible(request_id), "bold", "", request_target(request_id)),
        Span(f" {doing}"),
    )
    return pad_line(cut_line(words, width), width)
