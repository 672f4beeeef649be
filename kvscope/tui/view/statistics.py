"""The lines of the place "statistics": latencies, figures in words, a histogram, what the detectors found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvscope.analysis.finding import Finding
from kvscope.analysis.latencies import Unit, all_gaps
from kvscope.analysis.number_text import duration, number
from kvscope.analysis.percentiles import Bar, Distribution, histogram, whole_histogram
from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import count, wrap
from kvscope.analysis.stats import RunStatistics
from kvscope.analysis.stats_words import figure_words
from kvscope.analysis.wrong_readings import Warning
from kvscope.tui.view.entries import Entry, heading
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import EMPTY, Line, Span, Target, cut_line, line_width, merge, sentence_line
from kvscope.tui.view.step import TONE_ROLES
from kvscope.tui.view.window import Window, fitting_zoom

LABEL_COLUMNS = 14
NUM_BARS = 8
MAX_BAR = 40
MAX_OF_A_KIND = 25
"""Findings of one kind that are told."""
LATENCIES = (("queue", "queue"), ("ttft", "TTFT"), ("itl", "ITL"), ("end_to_end", "end-to-end"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """The figures of a run as the place shows them: what takes a look at every token is worked out before."""

    statistics: RunStatistics
    gaps: Sequence[Bar]
    """The gaps between tokens."""
    ends: Mapping[str, int]
    """How many requests ended in which way."""


def run_figures(found: RunStatistics) -> RunFigures:
    """Works out what looks at every request and token."""
    gaps = all_gaps(found.requests)
    ends = Counter(request.finish_reason or "unfinished" for request in found.figures.requests.values())
    bars = histogram(gaps, NUM_BARS) if found.latencies.unit == "ns" else whole_histogram(gaps, NUM_BARS)
    return RunFigures(statistics=found, gaps=bars, ends=ends)


def latency_entries(found: RunStatistics, width: int) -> list[Entry]:
    """Returns the table of the latencies: mean and percentiles, as many columns as fit."""
    unit = found.latencies.unit
    names = ["mean", "p50", "p90", "p95", "p99", "max", "of"]
    rows = [(label, _cells(getattr(found.latencies, key), unit)) for key, label in LATENCIES]
    columns = [max(len(name), *(len(cells[index]) for _, cells in rows)) + 2 for index, name in enumerate(names)]
    dropped: set[int] = set()
    for index in (2, 3, 0):
        if LABEL_COLUMNS + sum(size for place, size in enumerate(columns) if place not in dropped) > width:
            dropped.add(index)
    kept = [index for index in range(len(names)) if index not in dropped]
    head = "".join(f"{names[index]:>{columns[index]}}" for index in kept)
    title = "ms" if unit == "ns" else "steps"
    entries = [heading(cut_line((Span(f" {title:<{LABEL_COLUMNS - 1}}{head}", "dim"),), width))]
    for label, cells in rows:
        figures = "".join(f"{cells[index]:>{columns[index]}}" for index in kept)
        entries.append(heading(cut_line((Span(f" {label:<{LABEL_COLUMNS - 1}}", "dim"), Span(figures)), width)))
    return entries


def _cells(found: Distribution | None, unit: str) -> list[str]:
    if found is None:
        return ["–"] * 6 + ["0"]
    values = (found.mean, found.p50, found.p90, found.p95, found.p99, found.largest)
    return [*(duration(value, unit) for value in values), number(found.num_values)]


def figure_entries(found: RunStatistics, width: int) -> list[Entry]:
    """Returns the other figures in words, each behind its label."""
    entries: list[Entry] = []
    for label, text in figure_words(found):
        rows = wrap((WordSpan(text),), max(width - LABEL_COLUMNS - 1, 8))
        lines: list[Line] = [
            (Span(f" {label if index == 0 else '':<{LABEL_COLUMNS - 1}}", "dim"), *sentence_line(row))
            for index, row in enumerate(rows)
        ]
        entries.append(Entry(tuple(lines)))
    return entries


def histogram_entries(bars: Sequence[Bar], unit: Unit, width: int, glyphs: Glyphs) -> list[Entry]:
    """Returns the gaps between tokens as bars: how many of each length."""
    if not bars:
        return [heading((Span("   no request had a second token", "dim"),))]
    labels = [_range(bar.low, bar.high, unit) for bar in bars]
    counts = [number(bar.num_values) for bar in bars]
    left, middle = max(map(len, labels)), max(map(len, counts))
    room = max(min(width - left - middle - 6, MAX_BAR), 1)
    most = max(bar.num_values for bar in bars)
    return [
        heading(
            (
                Span(f" {label:>{left}}  ", "dim"),
                Span(f"{text:>{middle}}  "),
                Span(glyphs.bar_decode * (round(bar.num_values * room / most) or int(bar.num_values > 0)), "decode"),
            )
        )
        for bar, label, text in zip(bars, labels, counts, strict=True)
    ]


def _range(low: float, high: float, unit: str) -> str:
    return duration(low, unit) if low == high else f"{duration(low, unit)} – {duration(high, unit)}"


# --- what stands out --------------------------------------------------------------------------------------------------


def finding_target(index: int) -> Target:
    """Returns where a finding leads: its first step, with its request selected."""
    return Target("finding", str(index))


def worst_findings(findings: Sequence[Finding]) -> tuple[list[Finding], int]:
    """Returns the findings that are told, the longest `MAX_OF_A_KIND` of each kind, and how many are not."""
    of_kind: dict[str, list[Finding]] = {}
    for finding in findings:
        of_kind.setdefault(finding.kind, []).append(finding)
    told: list[Finding] = []
    for found in of_kind.values():
        longest = sorted(range(len(found)), key=lambda index: -found[index].num_steps)[:MAX_OF_A_KIND]
        told += [found[index] for index in sorted(longest)]
    return told, len(findings) - len(told)


def finding_entries(findings: Sequence[Finding], num_more: int, width: int) -> list[Entry]:
    """Returns what the detectors found, each as a jump to its first step; `num_more` are only counted."""
    step_width = max((len(str(finding.first_step)) for finding in findings), default=1) + 1
    entries: list[Entry] = []
    for index, finding in enumerate(findings):
        said = finding.sentence
        role = TONE_ROLES[said.tone]
        lines: list[Line] = []
        for row_index, row in enumerate(wrap(said.spans, max(width - step_width - 4, 8))):
            head: Line = (Span(" " * (step_width + 3)),)
            if row_index == 0:
                head = (Span(f"{finding.first_step:>{step_width}} ", "dim"), Span(f"{said.glyph} ", f"bold {role}"))
            lines.append((*head, *sentence_line(row)))
        entries.append(Entry(tuple(lines), finding_target(index)))
    if num_more:
        entries.append(heading((Span(f"   … {count(num_more, 'shorter one')} (kvscope stats --findings)", "dim"),)))
    return entries or [heading((Span("   the detectors found nothing", "dim"),))]


def warning_entries(warnings: Sequence[Warning], width: int) -> list[Entry]:
    """Returns the wrong readings that lie near, to be read."""
    entries: list[Entry] = []
    for warning in warnings:
        rows = wrap((WordSpan(warning.text),), max(width - 3, 8))
        lines: list[Line] = [
            (Span(" ! " if index == 0 else "   ", "bold evict"), *sentence_line(row)) for index, row in enumerate(rows)
        ]
        entries += [Entry(tuple(lines)), heading(EMPTY)]
    return entries


def next_finding(findings: Sequence[Finding], step: int, direction: int) -> int | None:
    """Returns the finding that begins next after (or before) a step, None where there is none."""
    steps = [finding.first_step for finding in findings]
    beyond = [at for at in steps if (at > step if direction > 0 else at < step)]
    if not beyond:
        return None
    return steps.index(min(beyond) if direction > 0 else max(beyond))


# --- the whole run ----------------------------------------------------------------------------------------------------


def whole_run(first_step: int, last_step: int, num_columns: int) -> Window:
    """Returns the page that shows all steps, in as few steps a column as fit."""
    per_column = fitting_zoom(first_step, last_step, num_columns)
    return Window(first_step - first_step % per_column, num_columns, per_column)


def finding_marks(findings: Sequence[Finding], window: Window, step: int, gutter: int) -> Line:
    """Returns a row under the timeline: where each finding begins, the gravest where several do."""
    cells = [Span(" ") for _ in range(window.num_columns)]
    for finding in reversed(findings):
        if finding.first_step in window:
            role = TONE_ROLES[finding.sentence.tone]
            cells[window.column(finding.first_step)] = Span(finding.sentence.glyph, f"bold {role}")
    if step in window:
        column = window.column(step)
        cells[column] = cells[column]._replace(on="cursor")
    return (Span("findings".ljust(gutter), "dim"), *merge(cells))


def run_title(found: RunFigures | None, width: int) -> Line:
    """Returns how many requests and steps there were, and how they ended."""
    if found is None:
        return ()
    speed = found.statistics.throughput
    took = f" in {speed.duration_ns / 1e9:,.2f} s" if speed.duration_ns is not None else ""
    line: Line = (Span(f"{count(sum(found.ends.values()), 'request')}, {speed.num_steps:,} steps{took}"),)
    for reason, times in found.ends.items():
        longer = (*line, Span(f" · {times} {reason}", "dim"))
        if line_width(longer) > width:
            break
        line = longer
    return line
