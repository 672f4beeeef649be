"""The lines of a block's place: what it is now, who holds it, what it holds; its biography as a list of jumps."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.happenings import Happening
from kvscope.analysis.pool_view import BlockChange, BlockFacts, BlockHolder, BlockStatus
from kvscope.analysis.text import visible
from kvscope.tui.view.entries import Entry
from kvscope.tui.view.lines import Line, Span, Target, cut_line, fit, line_width, request_target, step_target
from kvscope.tui.view.request_place import happening_rows

LABEL_COLUMNS = 11
MAX_ID_CELLS = 24

_STATUS_WORDS = {
    BlockStatus.NULL: ("the null block, never handed out", "dim"),
    BlockStatus.FREE: ("free", "text"),
    BlockStatus.CACHED: ("free, still cached: it can be hit", "cached"),
    BlockStatus.LIVE: ("held by one request", "live"),
    BlockStatus.SHARED: ("shared", "shared"),
}
_CHANGE_WORDS = {
    BlockChange.NONE: "",
    BlockChange.NEW: "taken in this step",
    BlockChange.EVICTING: "taken in this step, a cached block lost",
    BlockChange.HIT: "hit in this step",
    BlockChange.RELEASED: "given back in this step",
}


def fact_lines(facts: BlockFacts, block_hash: int | None, block_size: int, width: int, height: int) -> list[Line]:
    """Returns what the block is after the step, in at most `height` lines, the text last."""
    words, role = _STATUS_WORDS[facts.status]
    status: list[Span] = [Span(words, f"bold {role}")]
    if facts.ref_cnt > 1:
        status = [Span(f"shared by {facts.ref_cnt}", f"bold {role}")]
    if facts.free_queue_position is not None:
        place = "next to be taken" if facts.free_queue_position == 0 else f"{facts.free_queue_position} go before it"
        status.append(Span(f", {place}", "dim"))
    if _CHANGE_WORDS[facts.change]:
        status.append(Span(f" · {_CHANGE_WORDS[facts.change]}", "dim"))
    lines: list[Line] = [_row("now", status, width)]
    if facts.holders:
        lines.append(_row("holders", _holders(facts.holders, width - LABEL_COLUMNS), width))
    if facts.origin is not None:
        origin = [Span("computed by ", "dim"), _holder(facts.origin)]
        if block_hash is not None:
            digits = f"{block_hash:016x}"
            origin += [Span(", hash ", "dim"), Span(digits, "dim", "", Target("hash", digits))]
        lines.append(_row("published", origin, width))
    if facts.num_tokens:
        lines.append(_row("holds", [Span(f"{facts.num_tokens} of {block_size} tokens", "text")], width))
    room = max(width - LABEL_COLUMNS - 1, 8)
    text = facts.text
    while text and len(lines) < height:
        part = fit(text, room, "")
        label = "text" if text is facts.text else ""
        lines.append(_row(label, [Span(part, "text")], width))
        text = text[len(part) :] if part else ""
    return lines[:height]


def _row(label: str, spans: Sequence[Span], width: int) -> Line:
    return cut_line((Span(f" {label}".ljust(LABEL_COLUMNS), "dim"), *spans), width)


def _holder(holder: BlockHolder) -> Span:
    name = f"{fit(visible(holder.request_id), MAX_ID_CELLS)}[{holder.index}]"
    return Span(name, "bold", "", request_target(holder.request_id))


def _holders(holders: Sequence[BlockHolder], width: int) -> list[Span]:
    spans: list[Span] = []
    for index, holder in enumerate(holders):
        span = _holder(holder)
        more = f"and {len(holders) - index} more"
        if line_width([*spans, span]) + len(more) + 2 > width and index < len(holders) - 1:
            return [*spans, Span(more, "dim")]
        spans += [span, Span("  ")]
    return spans


def life_entries(life: Sequence[Happening], step: int, width: int) -> list[Entry]:
    """Returns an entry for each thing that happened, a jump to its step; what comes after the step is dim."""
    step_columns = len(str(life[-1].step)) + 1 if life else 1
    entries: list[Entry] = []
    for told in life:
        rows = happening_rows(told, width, step_columns)
        if told.step > step:
            rows = [tuple(span._replace(role="dim") for span in row) for row in rows]
        entries.append(Entry(tuple(rows), step_target(told.step, told.sentence)))
    return entries
