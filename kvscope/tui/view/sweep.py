"""The lines of the place "what if": the recorded workload under several values of a setting, a bar for each figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.analysis.latencies import Unit, latencies
from kvscope.analysis.number_text import duration, number
from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import wrap
from kvscope.analysis.stats import latency_summary, throughput
from kvscope.analysis.text import visible
from kvscope.analysis.whatif import Sweep, SweepRow
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import Line, Span, cut_line, pad, sentence_line

MIN_BAR = 2
MAX_BAR = 24


@dataclass(frozen=True, slots=True)
class SweepFigures:
    """What is shown of one value. A figure is None where no request got so far."""

    value: str
    is_recorded: bool
    is_stuck: bool
    figures: tuple[float | None, ...]
    """Of each column, see `COLUMNS`."""
    texts: tuple[str, ...]


COLUMNS = ("TTFT p99", "ITL p99", "tokens out", "preempted")
ROLES = ("prefill", "decode", "cached", "preempted")


def sweep_figures(row: SweepRow, unit: Unit) -> SweepFigures:
    """Works out what is shown of a value: looks at every request and token."""
    found = latency_summary(latencies(row.figures, unit), unit)
    speed = throughput(row.figures)
    rate = (
        speed.per_second(speed.num_output_tokens) if unit == "ns" else speed.num_output_tokens / max(speed.num_steps, 1)
    )
    ttft = found.ttft.p99 if found.ttft is not None else None
    itl = found.itl.p99 if found.itl is not None else None
    num_preemptions = len(row.figures.preemptions)
    return SweepFigures(
        value=visible(str(row.value)),
        is_recorded=row.is_recorded,
        is_stuck=row.stuck is not None,
        figures=(ttft, itl, rate, float(num_preemptions)),
        texts=(
            duration(ttft, unit),
            duration(itl, unit),
            number(rate, 1 if unit == "ns" else 2),
            number(num_preemptions),
        ),
    )


def sweep_lines(rows: Sequence[SweepFigures], unit: Unit, width: int, glyphs: Glyphs) -> list[Line]:
    """Returns a header, and for each value a bar and a figure of each column; bars of a column share their scale."""
    labels = [f" {row.value}{' *' if row.is_recorded else ''}{' stuck' if row.is_stuck else ''}" for row in rows]
    label_width = max([len(label) for label in labels] + [6]) + 1
    text_widths = [max(len(row.texts[index]) for row in rows) for index in range(len(COLUMNS))]
    room = (width - label_width - sum(text_widths)) // len(COLUMNS) - 3
    bar_width = max(min(room, MAX_BAR), MIN_BAR)
    units = ("ms", "ms", "/s", "") if unit == "ns" else ("steps", "steps", "/step", "")
    head = " " * label_width
    for name, suffix, text_width in zip(COLUMNS, units, text_widths, strict=True):
        title = f"{name}{'' if suffix.startswith('/') else ' '}{suffix}".strip()
        column = bar_width + text_width + 3
        head += pad(title if len(title) < column else name, column)
    lines: list[Line] = [(Span(head, "dim"),)]
    most = [max((row.figures[index] or 0 for row in rows), default=0) for index in range(len(COLUMNS))]
    for row, label in zip(rows, labels, strict=True):
        role = "bold bad" if row.is_stuck else "bold" if row.is_recorded else "text"
        spans: list[Span] = [Span(pad(label, label_width), role)]
        for index, (role, text_width) in enumerate(zip(ROLES, text_widths, strict=True)):
            figure = row.figures[index] or 0
            cells = round(figure * bar_width / most[index]) if most[index] else 0
            cells = max(cells, 1) if figure else 0
            spans.append(Span(pad(glyphs.life_decode * cells, bar_width), role))
            spans.append(Span(f" {row.texts[index]:>{text_width}}  "))
        lines.append(cut_line(tuple(spans), width))
    return lines


def sweep_notes(sweep: Sweep, width: int) -> list[Line]:
    """Says what the figures are, and how far the step time is off."""
    words = ["* as recorded."]
    if sweep.model is None:
        words.append("Requests arrive at their recorded steps; a scripted run has no clock, so figures are in steps.")
    else:
        error = sweep.model.error
        words.append(
            "Requests arrive at their recorded times; every time is an estimate. Step time is fitted to "
            f"{error.num_steps:,} steps: off by {error.median:.1%} at the median, {error.p90:.1%} at p90, "
            f"{error.largest:.0%} at worst."
        )
        if error.is_poor:
            words.append("The fit is poor: single times are guesses.")
    rows = wrap((WordSpan(" ".join(words), "dim"),), max(width - 1, 8))
    return [(Span(" "), *sentence_line(row)) for row in rows]
