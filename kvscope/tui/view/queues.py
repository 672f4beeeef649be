"""The two queues as rows: who waits and why, who runs and what each got of the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvscope.analysis.queue_view import RunningRow
from kvscope.analysis.step_facts import StepShare
from kvscope.analysis.text import cell_width, visible
from kvscope.analysis.verdicts import WaitingVerdict
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import (
    EMPTY,
    WORD_ROLES,
    Line,
    Span,
    fit,
    merge,
    pad_line,
    put_behind,
    request_target,
    two_ends,
)
from kvscope.tui.view.queue_figures import (
    RUNNING_TITLE,
    WAITING_TITLE,
    Figures,
    running_figures,
    waiting_figures,
)
from kvscope.tui.view.windowing import Gap, Slot, head_window

TOKEN_COLUMNS = 9
MIN_BAR = 4
MAX_BAR = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSlots:
    """Which places of the two queues the panel shows, and in how many lines."""

    waiting: list[Slot]
    num_waiting_lines: int
    running: list[Slot]
    num_running_lines: int


def queue_slots(
    num_waiting: int,
    num_running: int,
    height: int,
    max_num_seqs: int,
    *,
    selected_waiting: int | None,
    selected_running: int | None,
    is_maximised: bool = False,
) -> QueueSlots:
    """Divides `height` lines, both titles included, between the queues.

    `is_maximised`: by how long they are now, so that as little as possible of them is left out.
    """
    available = max(height - 2, 0)
    if is_maximised:
        num_waiting_lines = _needed_height(max(num_waiting, 1), max(num_running, 1), available)
    else:
        num_waiting_lines = waiting_height(num_waiting, available, max_num_seqs)
    num_running_lines = available - num_waiting_lines
    return QueueSlots(
        waiting=head_window(num_waiting, num_waiting_lines, selected_waiting, num_head=1),
        num_waiting_lines=num_waiting_lines,
        running=head_window(num_running, num_running_lines, selected_running),
        num_running_lines=num_running_lines,
    )


def _needed_height(num_waiting: int, num_running: int, available: int) -> int:
    """Returns the rows of the waiting queue: all it needs, with a blank one, where both fit; else at least a half."""
    if num_waiting + 1 + num_running <= available:
        return num_waiting + 1
    return max(min(num_waiting, available // 2), available - num_running)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesView:
    """The panel's lines, and which request stands in which of them."""

    lines: tuple[Line, ...]
    request_ids: tuple[str | None, ...]
    """Of each line."""


def waiting_height(num_waiting: int, available: int, max_num_seqs: int) -> int:
    """Returns the rows that the waiting queue gets: two fifths; where it is longer, also what runners never need.

    Within either case it depends on the run's settings alone, so that nothing jumps while time moves.
    """
    share = max(available * 2 // 5, min(available, 1))
    return share if num_waiting <= share else max(share, available - max(max_num_seqs, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What the panel shows; rows by their place in the queue, of the places in its slots."""

    num_waiting: int
    num_running: int
    max_num_seqs: int
    num_submitted: int
    """Submissions that have not reached the queue."""
    verdicts: Mapping[int, WaitingVerdict]
    running: Mapping[int, RunningRow]
    is_scheduled: bool = True
    """False inside a step, before its tokens were given out: nobody has got nothing yet."""
    figures: Figures = field(default_factory=dict)


def queues_view(
    facts: QueueFacts, slots: QueueSlots, width: int, *, selected_id: str | None, glyphs: Glyphs
) -> QueuesView:
    """Lays both queues out in lines of `width` cells, without the panel's title."""
    waiting = _waiting_lines(facts, slots, width, selected_id, glyphs)
    running = _running_lines(facts, slots, width, selected_id, glyphs)
    rows: list[tuple[Line, str | None]] = [
        (_waiting_title(facts, width), None),
        *_filled(waiting, slots.num_waiting_lines),
        (_running_title(facts, width), None),
        *_filled(running, slots.num_running_lines),
    ]
    return QueuesView(lines=tuple(line for line, _ in rows), request_ids=tuple(request_id for _, request_id in rows))


def _filled(rows: list[tuple[Line, str | None]], height: int) -> list[tuple[Line, str | None]]:
    return (rows + [(EMPTY, None)] * (height - len(rows)))[:height]


def _waiting_title(facts: QueueFacts, width: int) -> Line:
    left: Line = (
        Span("WAITING ", "bold"),
        Span(str(facts.num_waiting), "bold bad" if facts.num_waiting else "bold"),
    )
    if facts.num_submitted:
        left = (*left, Span(f"  +{facts.num_submitted} submitted", "dim"))
    right = WAITING_TITLE if facts.figures else "steps waited "
    return two_ends(left, (Span(right, "dim"),) if facts.num_waiting else (), width)


def _running_title(facts: QueueFacts, width: int) -> Line:
    left: Line = (Span("RUNNING ", "bold"), Span(str(facts.num_running), "bold"))
    if facts.max_num_seqs:
        left = (*left, Span(f"/{facts.max_num_seqs}", "dim"))
    right = f"{RUNNING_TITLE}  tokens  blocks  " if facts.figures else "tokens  blocks  "
    return two_ends(left, (Span(right, "dim"),) if facts.num_running else (), width)


def _waiting_lines(
    facts: QueueFacts, slots: QueueSlots, width: int, selected_id: str | None, glyphs: Glyphs
) -> list[tuple[Line, str | None]]:
    if not facts.num_waiting:
        return [((Span(" nobody waits", "dim"),), None)]
    shown = [facts.verdicts[slot] for slot in slots.waiting if not isinstance(slot, Gap)]
    position_width = len(str(facts.num_waiting)) + 1
    id_width = _id_width([verdict.request_id for verdict in shown], width)
    rows: list[tuple[Line, str | None]] = []
    for slot in slots.waiting:
        if isinstance(slot, Gap):
            what = "more behind" if slot.is_end else "more"
            rows.append(((Span(" " * (position_width + 1) + f"… {slot.num_rows} {what}", "dim"),), None))
            continue
        verdict = facts.verdicts[slot]
        more = waiting_figures(facts.figures, verdict.request_id)
        lines = _waiting_row(verdict, width, position_width, id_width, verdict.request_id == selected_id, glyphs, more)
        rows.extend((line, verdict.request_id) for line in lines)
    return rows


def _id_width(request_ids: Iterable[str], width: int) -> int:
    return min(max((cell_width(visible(request_id)) for request_id in request_ids), default=0), width // 2)


def _waiting_row(
    verdict: WaitingVerdict,
    width: int,
    position_width: int,
    id_width: int,
    is_selected: bool,
    glyphs: Glyphs,
    more: Line,
) -> list[Line]:
    mark = glyphs.mark_preempted if verdict.was_preempted else " "
    position = f"{verdict.position + 1:>{position_width}}"
    if is_selected:
        position = glyphs.selected + position[1:]
    request_id = fit(visible(verdict.request_id), id_width)
    head: Line = (
        Span(position, "text" if is_selected else "dim"),
        Span(mark, "preempted"),
        Span(request_id, "bold", "", request_target(verdict.request_id)),
        Span(" " * (id_width - cell_width(request_id) + 1)),
    )
    words = _verdict_spans(verdict)
    waited: Line = (*more, Span(f"{verdict.num_waited_steps:>{7 if more else 1}}", "dim"), Span(" "))
    room = width - sum(cell_width(span.text) for span in head)
    words_width = sum(cell_width(span.text) for span in words)
    if words_width + sum(cell_width(span.text) for span in waited) + 1 <= room:
        lines = [two_ends((*head, *words), waited, width)]
    elif words_width <= room:
        lines = [pad_line((*head, *words), width)]
    else:  # a verdict is never cut: it gets a line of its own
        lines = [two_ends(head, waited, width), pad_line((Span(" " * (position_width + 1)), *words), width)]
    return [put_behind(line, "selected") for line in lines] if is_selected else lines


def _verdict_spans(verdict: WaitingVerdict) -> Line:
    """The words of the verdict: red where the request is the one that was refused, green where it fits."""
    spans: list[Span] = []
    for span in verdict.spans:
        if verdict.is_preempted_now or (verdict.is_refused and span.role != "dim"):
            role = "preempted"
        elif verdict.fits and "fits" in span.text:
            before, word, behind = span.text.partition("fits")
            spans += [Span(before), Span(word, "hit"), Span(behind)]
            continue
        else:
            role = WORD_ROLES[span.role]
        spans.append(Span(span.text, role))
    return merge(spans)


def _running_lines(
    facts: QueueFacts, slots: QueueSlots, width: int, selected_id: str | None, glyphs: Glyphs
) -> list[tuple[Line, str | None]]:
    if not facts.num_running:
        return [((Span(" nobody runs", "dim"),), None)]
    id_width = _id_width([row.request_id for row in facts.running.values()], width)
    rows: list[tuple[Line, str | None]] = []
    for slot in slots.running:
        if isinstance(slot, Gap):
            rows.append(((Span(f"   … {slot.num_rows} more", "dim"),), None))
        else:
            row = facts.running[slot]
            tokens = _tokens(row.share, glyphs) if facts.is_scheduled or row.share else (Span(" " * TOKEN_COLUMNS),)
            tail = (*running_figures(facts.figures, row.request_id), *tokens)
            rows.append(
                (_running_row(row, width, id_width, row.request_id == selected_id, glyphs, tail), row.request_id)
            )
    return rows


def _running_row(row: RunningRow, width: int, id_width: int, is_selected: bool, glyphs: Glyphs, figures: Line) -> Line:
    request_id = fit(visible(row.request_id), id_width)
    head: Line = (
        Span(glyphs.selected if is_selected else " ", "text"),
        Span(request_id, "bold", "", request_target(row.request_id)),
        Span(" " * (id_width - cell_width(request_id) + 1)),
    )
    new = f"+{row.num_new_blocks}" if row.num_new_blocks else ""
    tail: Line = (
        *figures,
        Span(f"{row.num_blocks:>5}"),
        Span(f"{new:<4}", "new"),
    )
    tail_width = sum(cell_width(span.text) for span in tail)
    bar = min(width - id_width - 2 - tail_width - 1, MAX_BAR)
    bar_line = progress(row, bar) if bar >= MIN_BAR else EMPTY
    line = two_ends((*head, *bar_line), tail, width)
    return put_behind(line, "selected") if is_selected else line


def _tokens(share: StepShare | None, glyphs: Glyphs) -> Line:
    if share is None:
        return (Span(f"{'—':>5}", "bad"), Span("    "))
    role, kind = ("prefill", " pre") if share.is_prefill else ("decode", " dec")
    drafts = f"{glyphs.draft}{share.num_draft_tokens}" if share.num_draft_tokens else ""
    figure = f"+{share.num_tokens - share.num_draft_tokens}"
    return (Span(f"{figure:>{5 - cell_width(drafts)}}", role), Span(drafts, "draft"), Span(kind, "dim"))


def progress(row: RunningRow, width: int) -> Line:
    """Returns the bar to prompt + max_tokens: computed prompt tokens, computed output, the rest."""
    total = max(row.num_prompt_tokens + row.max_tokens, 1)
    filled = min(round(row.num_computed_tokens * width / total), width)
    if row.num_computed_tokens and not filled:
        filled = 1
    is_beyond = row.num_computed_tokens > row.num_prompt_tokens
    dark = min(round(row.num_prompt_tokens * width / total), filled) if is_beyond else filled
    rest = Span("─" * (width - filled), "rule")
    return merge((Span("━" * dark, "live"), Span("━" * (filled - dark), "decode"), rest))
