"""The lines of the request's place: facts, where its time went, its life, sharers, what happened to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvscope.analysis.block_table import Sharer
from kvscope.analysis.happenings import Happening
from kvscope.analysis.life import TimeShare
from kvscope.analysis.request_view import RequestFacts
from kvscope.analysis.spans import count, wrap
from kvscope.analysis.text import visible
from kvscope.replay.timeline import StepSummary
from kvscope.tui.view.charts import Layer, stack_heights, stacked_rows
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.life import Deed, life_glyphs
from kvscope.tui.view.lines import (
    Line,
    Span,
    cut_line,
    fit,
    line_width,
    merge,
    request_target,
    sentence_line,
    step_target,
)
from kvscope.tui.view.step import TONE_ROLES
from kvscope.tui.view.timeline import tick_interval

Title = Callable[[str, Sequence[Span], int, Sequence[Span]], Line]

SHARE_ROLES = {"waiting": "dim", "prefill": "prefill", "decode": "decode"}
LABEL_COLUMNS = 10


def fact_lines(facts: RequestFacts, width: int, glyphs: Glyphs) -> list[Line]:
    """Returns two lines: its settings and what it does now, and its text."""
    at_most = "" if facts.finished_step is not None else "≤"
    pairs = [
        ("prompt", f"{facts.num_prompt_tokens} tokens"),
        ("output", f"{facts.num_output_tokens} of {at_most}{facts.max_tokens}"),
        ("priority", str(facts.priority)),
        ("sampling", facts.sampling),
        ("salt", visible(facts.cache_salt) if facts.cache_salt else "—"),
        *((("adapter", visible(facts.lora_name)),) if facts.lora_name else ()),
    ]
    now = (Span("now ", "dim"), *_now(facts))
    spans = _facts(pairs, now)
    for name in ("salt", "priority", "sampling", "adapter"):  # what is most often as usual yields first
        if line_width(spans) > width:
            pairs = [pair for pair in pairs if pair[0] != name]
            spans = _facts(pairs, now)
    text = fit(facts.prompt, max(width - LABEL_COLUMNS, 4))
    return [cut_line(tuple(spans), width), (Span("text   ", "dim"), Span("“"), Span(text), Span("”"))]


def _facts(pairs: Sequence[tuple[str, str]], now: Line) -> list[Span]:
    spans: list[Span] = []
    for name, value in pairs:
        spans += [Span(f"{name} ", "dim"), Span(f"{value}   ")]
    return [*spans, *now]


def _now(facts: RequestFacts) -> Line:
    blocks = f", {facts.num_blocks} blocks" if facts.num_blocks else ""
    if facts.share is not None:
        role = "prefill" if facts.share.is_prefill else "decode"
        return (Span(f"+{facts.share.num_tokens} {role}{blocks}", f"bold {role}"),)
    if facts.queue_position is not None:
        return (Span(f"{facts.phase}, number {facts.queue_position + 1} in the queue{blocks}", "bold"),)
    reason = f" ({facts.finish_reason})" if facts.finish_reason else ""
    return (Span(f"{facts.phase}{reason}{blocks}", "bold"),)


def time_lines(shares: Sequence[TimeShare], width: int, title: Title, glyphs: Glyphs) -> list[Line]:
    """Returns a title, one bar of its time, and its legend with the figures."""
    num_steps = sum(share.num_steps for share in shares)
    durations = [share.duration_ns for share in shares]
    has_clock = bool(shares) and None not in durations and sum(value or 0 for value in durations) > 0
    total_ms = sum(value or 0 for value in durations) / 1e6
    right = f"{count(num_steps, 'step')}, {total_ms:.0f} ms" if has_clock else count(num_steps, "step")
    sizes = [(share.duration_ns or 0) if has_clock else share.num_steps for share in shares]
    room = max(width - 4, 1)
    bar: list[Span] = [Span(" ")]
    legend: list[Span] = [Span(" ")]
    fills = {"waiting": glyphs.cached, "prefill": glyphs.bar_prefill, "decode": glyphs.bar_decode}
    for share, cells in zip(shares, _cells(sizes, room), strict=True):
        role, fill = SHARE_ROLES[share.state], fills[share.state]
        bar.append(Span(fill * cells, role))
        figure = f"{(share.duration_ns or 0) / 1e6:.0f} ms " if has_clock else ""
        tokens = f" {share.num_tokens} tok" if share.num_tokens else ""
        legend += [
            Span(fill, role),
            Span(f" {share.state} ", "dim"),
            Span(figure, "bold"),
            Span(f"{count(share.num_steps, 'step')}{tokens}     ", "dim"),
        ]
    return [title("WHERE ITS TIME WENT", (), width, (Span(right, "dim"),)), merge(bar), cut_line(merge(legend), width)]


def _cells(sizes: Sequence[int], room: int) -> list[int]:
    """Divides `room` cells by the sizes; what is not zero gets at least one."""
    total = sum(sizes)
    if not total:
        return [0] * len(sizes)
    cells = [max(round(size * room / total), 1) if size else 0 for size in sizes]
    cells[cells.index(max(cells))] += room - sum(cells)
    return cells


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeFacts:
    """A request's life in cells of `steps_per_cell` steps, from `first_step` on."""

    first_step: int
    last_step: int
    steps_per_cell: int
    deeds: Sequence[Deed]
    num_blocks: Sequence[int]
    """Blocks that it held, the most in each cell."""
    loads: Sequence[StepSummary]
    """What the steps computed, its own share and the others'."""


def life_lines(facts: LifeFacts, width: int, title: Title, glyphs: Glyphs) -> list[Line]:
    """Returns a title, the lines of its states, its blocks and the steps' load, and their axis."""
    size = facts.steps_per_cell
    cell = "1 step a cell" if size == 1 else f"{size} steps a cell"
    right = (Span(f"steps {facts.first_step} → {facts.last_step}, {cell}", "dim"),)
    chars, roles = life_glyphs(facts.deeds, glyphs)
    state = merge(Span(char, role) for char, role in zip(chars, roles, strict=True))
    most = max(facts.num_blocks, default=0)
    blocks = stacked_rows(
        [stack_heights((number,), most, 1) for number in facts.num_blocks], (Layer("live", glyphs.bar_live),), 1, glyphs
    )
    loads = stacked_rows(
        [
            stack_heights(
                (load.num_decode_tokens + load.num_draft_tokens, load.num_prefill_tokens), load.token_budget, 1
            )
            for load in facts.loads
        ],
        (Layer("decode", glyphs.bar_decode), Layer("prefill", glyphs.bar_prefill)),
        1,
        glyphs,
    )
    return [
        title("LIFE", (), width, right),
        (Span("state".ljust(LABEL_COLUMNS), "dim"), *state),
        (Span("blocks ", "dim"), Span(f"{most:<{LABEL_COLUMNS - 7}}"), *blocks[0]),
        (Span("step load".ljust(LABEL_COLUMNS), "dim"), *loads[0]),
        (Span(" " * LABEL_COLUMNS), *_life_axis(facts.first_step, facts.last_step, size, len(facts.deeds))),
    ]


def _life_axis(first_step: int, last_step: int, steps_per_cell: int, num_cells: int) -> Line:
    spans: list[Span] = []
    used = 0
    interval = max(tick_interval(steps_per_cell), 1)
    for step in [first_step, *range(-(-(first_step + 1) // interval) * interval, last_step + 1, interval)]:
        column = (step - first_step) // steps_per_cell
        text = f"╵{step}"
        if column < used or (column + len(text) > num_cells and used):
            continue
        spans += [Span(" " * (column - used)), Span("╵", "rule"), Span(str(step), "dim", "", step_target(step))]
        used = column + len(text) + 1
        spans.append(Span(" "))
    return tuple(spans)


def sharer_lines(sharers: Sequence[Sharer], max_lines: int) -> list[Line]:
    """Returns a line for each request that holds the same blocks."""
    shown = sharers if len(sharers) <= max_lines else sharers[: max_lines - 1]
    lines: list[Line] = [
        (
            Span(f" {visible(sharer.request_id)}", "bold", "", request_target(sharer.request_id)),
            Span(f"  {sharer.num_blocks} {'block' if sharer.num_blocks == 1 else 'blocks'},"),
            Span(f" {sharer.num_tokens} tokens", "dim"),
        )
        for sharer in shown
    ]
    if len(shown) < len(sharers):
        lines.append((Span(f" … {len(sharers) - len(shown)} more", "dim"),))
    return lines


def happening_rows(happening: Happening, width: int, step_width: int) -> list[Line]:
    """Returns one happening: its step (a jump), its glyph, its words, wrapped."""
    sentence = happening.sentence
    role = TONE_ROLES[sentence.tone]
    indent = step_width + 3
    lines: list[Line] = []
    for index, row in enumerate(wrap(sentence.spans, max(width - indent - 1, 8))):
        head: Line = (Span(" " * indent),)
        if index == 0:
            step = Span(f"{happening.step:>{step_width}} ", "dim", "", step_target(happening.step))
            head = (step, Span(f"{sentence.glyph} ", f"bold {role}"))
        lines.append((*head, *sentence_line(row)))
    return lines
