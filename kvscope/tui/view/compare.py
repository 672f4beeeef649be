"""The lines of the place "compare": two steps of the run, what changed first, and what happened in between."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import count, wrap
from kvscope.analysis.step_difference import (
    BlockDifference,
    FigurePair,
    RequestDifference,
    StepDifference,
)
from kvscope.analysis.text import cell_width, visible
from kvscope.tui.view.entries import Entry, heading
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import (
    WORD_ROLES,
    Line,
    Span,
    cut_line,
    fit,
    line_width,
    merge,
    pad,
    request_target,
    sentence_line,
    step_target,
)
from kvscope.tui.view.pool_grid import PoolGrid, pool_grid
from kvscope.tui.view.step import COLOURED_FIGURES, TONE_ROLES

FIGURE_COLUMNS = 18
MAX_ID_CELLS = 14

STRONGEST_FIRST = (
    BlockDifference.OTHER_OWNER,
    BlockDifference.TAKEN,
    BlockDifference.GIVEN_BACK,
    BlockDifference.SAME,
    BlockDifference.FREE,
    BlockDifference.NULL,
)


def steps_line(step_a: int, step_b: int, marked: int, found: StepDifference | None, width: int) -> Line:
    """Returns which steps are compared, and how far they lie apart."""
    line: Line = (
        Span(" A ", "bold", "chip-held"),
        Span(f" step {step_a}", "bold", "", step_target(step_a)),
        Span(" (marked)" if marked == step_a else "", "dim"),
        Span("  "),
        Span(" B ", "bold", "chip-loading"),
        Span(f" step {step_b}", "bold", "", step_target(step_b)),
        Span(" (marked)" if marked == step_b else "", "dim"),
    )
    if found is not None and found.between is None:
        line = (*line, Span(f"   {count(step_b - step_a, 'step')} later"))
    elif found is not None and found.between is not None:
        between = found.between
        took = f", {between.duration_ns / 1e6:,.0f} ms" if between.duration_ns is not None else ""
        line = (
            *line,
            Span(f"   {count(between.num_steps, 'step')}{took}, {between.num_scheduled_tokens:,} tokens later"),
        )
    return cut_line(tuple(span for span in line if span.text), width)


def between_line(found: StepDifference, width: int, waiting: str = "") -> Line:
    """Returns what happened in between, counted; `waiting` while it is being read."""
    between = found.between
    if between is None:
        return cut_line((Span(" In between: ", "dim"), Span(waiting, "dim")), width)
    parts = [
        (between.num_preempted, "preempted", "preempted"),
        (between.num_admitted, "admitted", "text"),
        (between.num_resumed, "resumed", "text"),
        (between.num_finished, "finished", "text"),
        (between.num_aborted, "aborted", "bad"),
        (between.num_evicted_blocks, "block evicted" if between.num_evicted_blocks == 1 else "blocks evicted", "evict"),
        (between.num_hit_tokens, "token hit" if between.num_hit_tokens == 1 else "tokens hit", "hit"),
    ]
    for shows_zero in (True, False):
        spans: list[Span] = [Span(" In between: ", "dim")]
        for number, name, role in parts:
            if not number and (name == "aborted" or not shows_zero):
                continue
            if len(spans) > 1:
                spans.append(Span(" · ", "dim"))
            spans.append(Span(f"{number:,} {name}", f"bold {role}" if number else "dim"))
        if line_width(spans) <= width:
            break
    if len(spans) == 1:
        spans.append(Span("nobody came or went", "dim"))
    return cut_line(merge(spans), width)


# --- figures and requests ---------------------------------------------------------------------------------------------


def figure_entries(found: StepDifference, width: int, *, shows_equal: bool) -> list[Entry]:
    """Returns the figures of both steps, those that differ first; equal ones dim, or in one line for want of rows."""
    columns = (width - FIGURE_COLUMNS - 2) // 3
    head = f" {'':<{FIGURE_COLUMNS}}{'A':>{columns}}{'B':>{columns}}{'B−A':>{columns}}"
    entries = [heading((Span(head, "dim"),))]
    equal: list[str] = []
    for pair in found.figures:
        if not pair.differs and not shows_equal:
            equal.append(f"{pair.name} {_number(pair.a)}")
            continue
        role = "text" if pair.differs else "dim"
        entries.append(
            heading(
                (
                    Span(f" {pad(pair.name, FIGURE_COLUMNS)}", role),
                    Span(f"{_number(pair.a):>{columns}}{_number(pair.b):>{columns}}", role),
                    Span(f"{_change(pair):>{columns}}", "bold" if pair.differs else "dim"),
                )
            )
        )
    if equal:
        entries += [heading((Span(f" {row}", "dim"),)) for row in _equal_rows(equal, width - 1)]
    return entries


def _equal_rows(figures: Sequence[str], width: int) -> list[str]:
    """Returns the figures in rows, each whole in one."""
    rows = ["="]
    for number, figure in enumerate(figures, 1):
        text = figure if number == len(figures) else f"{figure},"
        if cell_width(f"{rows[-1]} {text}") > width:
            rows.append(" ")
        rows[-1] += f" {text}"
    return rows


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


def _change(pair: FigurePair) -> str:
    if not pair.differs:
        return "="
    if pair.a is None or pair.b is None:
        return "–"
    difference = round(pair.b - pair.a, 1)
    return f"{'+' if difference > 0 else '−'}{_number(abs(difference))}"


def request_entries(requests: Sequence[RequestDifference], width: int) -> list[Entry]:
    """Returns the requests, changed ones first; each is a jump."""
    if not requests:
        return [heading((Span("   no request in either step", "dim"),))]
    id_width = min(max(cell_width(visible(request.request_id)) for request in requests), MAX_ID_CELLS)
    return [
        Entry((_request_line(request, id_width, width),), request_target(request.request_id)) for request in requests
    ]


def _request_line(request: RequestDifference, id_width: int, width: int) -> Line:
    glyph, role = {"preempted": ("▲", "preempted"), "changed": ("≠", "text")}.get(request.change, (" ", "dim"))
    words = "dim" if request.change == "same" else "text"
    line: Line = (
        Span(f" {glyph} ", f"bold {role}"),
        Span(pad(fit(visible(request.request_id), id_width), id_width), "dim" if words == "dim" else "bold"),
        Span(f"  {_status(request)}", words),
    )
    for part in _parts(request):
        longer = (*line, Span(f"  {part}", "dim" if words == "dim" else "text"))
        if line_width(longer) > width:
            break
        line = longer
    return cut_line(line, width)


def _status(request: RequestDifference) -> str:
    before, after = _shown(request.status_a), _shown(request.status_b)
    times = f" ×{request.num_preemptions}" if request.num_preemptions > 1 else ""
    if request.change == "preempted" and request.status_b == "preempted":
        return f"{before} → preempted{times}"
    if request.change == "preempted":
        return f"{before}, preempted{times}, {after}"
    return before if before == after else f"{before} → {after}"


def _shown(status: str) -> str:
    return "waits again" if status == "preempted" else status


def _parts(request: RequestDifference) -> list[str]:
    parts: list[str] = []
    for name, (before, after) in (("block", request.num_blocks), ("token", request.num_tokens)):
        if before != after and not (name == "token" and request.status_a == "not arrived"):
            parts.append(f"{'+' if after > before else '−'}{count(abs(after - before), name)}")
    if request.num_steps_run and request.change != "went_on":
        parts.append(f"ran {count(request.num_steps_run, 'step')}")
    before_place, after_place = request.queue_position
    if before_place is not None and after_place is not None and before_place != after_place:
        parts.append(f"place {before_place + 1} → {after_place + 1}")
    return parts


# --- the pool ---------------------------------------------------------------------------------------------------------


def pool_title(found: StepDifference) -> Line:
    """Returns what stands at the right of the pool's title."""
    kept, lost, new = found.num_published
    return (Span(f"cached: {kept} stay, {lost} lost, {new} new", "dim"),)


def pool_lines(found: StepDifference, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Returns a legend line with the counts and the map of what became of each block."""
    grid = pool_grid(len(found.blocks), width - 1, max(height - 1, 1))
    scale: Line = ()
    if grid.blocks_per_cell > 1:
        scale = (Span(f"1 cell = {grid.blocks_per_cell} blocks", "dim"),)
    legend = (Span(" "), *_legend(found, width - 1, glyphs, scale))
    return [legend, *(_map_row(found.blocks, grid, row, glyphs) for row in range(grid.num_rows))]


def _legend(found: StepDifference, width: int, glyphs: Glyphs, scale: Line) -> Line:
    """Roomy where it fits, then without the zero counts, then with short names and without the scale."""
    entries = (
        (BlockDifference.TAKEN, "taken", "taken"),
        (BlockDifference.GIVEN_BACK, "given back", "back"),
        (BlockDifference.OTHER_OWNER, "other owner", "owner"),
        (BlockDifference.SAME, "same", "same"),
        (BlockDifference.FREE, "free", "free"),
    )
    for shows_zero, is_short, gap, end in (
        (True, False, "   ", scale),
        (False, False, "  ", scale),
        (False, True, " ", ()),
    ):
        spans: list[Span] = []
        for change, name, short_name in entries:
            number = found.num_blocks[change]
            if number or shows_zero:
                glyph, role = _block_glyph(change, glyphs)
                spans += [Span(glyph, role), Span(f" {short_name if is_short else name} ", "dim")]
                spans.append(Span(f"{number:,}{gap}", "bold"))
        spans[-1] = spans[-1]._replace(text=spans[-1].text.rstrip())
        if end:
            spans += [Span(gap), *end]
        if line_width(spans) <= width:
            break
    return cut_line(tuple(spans), width)


def _map_row(blocks: bytes, grid: PoolGrid, row: int, glyphs: Glyphs) -> Line:
    first = row * grid.blocks_per_row
    cells: list[Span] = [Span(f"{first:>{grid.label_columns}} ", "dim")]
    for start in range(first, min(first + grid.blocks_per_row, grid.num_blocks), grid.blocks_per_cell):
        found = set(blocks[start : start + grid.blocks_per_cell])
        change = next(kind for kind in STRONGEST_FIRST if kind in found)
        glyph, role = _block_glyph(change, glyphs)
        cells.append(Span(glyph, role))
        if grid.cell_columns == 2:
            cells.append(Span(" "))
    return merge(cells)


def _block_glyph(change: BlockDifference, glyphs: Glyphs) -> tuple[str, str]:
    return {
        BlockDifference.NULL: (glyphs.null, "dim"),
        BlockDifference.FREE: (glyphs.free, "rule"),
        BlockDifference.SAME: (glyphs.live, "free"),
        BlockDifference.TAKEN: (glyphs.new, "new"),
        BlockDifference.GIVEN_BACK: (glyphs.released, "released"),
        BlockDifference.OTHER_OWNER: ("~", "prefill"),
    }[change]


# --- in between -------------------------------------------------------------------------------------------------------


def happening_entries(found: StepDifference, width: int, waiting: str = "") -> list[Entry]:
    """Returns what was decided in between, rarest first, each leading to its step; `waiting` while it is being read."""
    if found.between is None:
        return [heading((Span(f"   {waiting}", "dim"),))]
    if not found.happenings:
        words = (WordSpan("no request came, went or was preempted", "dim"),)
        return [heading((Span("   "), *sentence_line(row))) for row in wrap(words, max(width - 3, 8))]
    step_width = max(len(str(step)) for step, _ in found.happenings) + 1
    entries: list[Entry] = []
    for step, said in found.happenings:
        role = TONE_ROLES[said.tone]
        roles = {**WORD_ROLES, "figure": f"bold {role}" if said.tone in COLOURED_FIGURES else "bold"}
        lines: list[Line] = []
        for index, row in enumerate(wrap(said.spans, max(width - step_width - 4, 8))):
            head: Line = (Span(" " * (step_width + 3)),)
            if index == 0:
                head = (Span(f"{step:>{step_width}} ", "dim"), Span(f"{said.glyph} ", f"bold {role}"))
            lines.append((*head, *sentence_line(row, roles)))
        entries.append(Entry(tuple(lines), step_target(step, said)))
    return entries
