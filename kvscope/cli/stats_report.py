"""A recording's statistics as text of 80 columns and as JSON."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kvscope.analysis.detectors import Finding
from kvscope.analysis.latencies import RequestLatency, Unit
from kvscope.analysis.percentiles import Distribution, histogram, whole_histogram
from kvscope.analysis.request_figures import RequestFigures
from kvscope.analysis.speculation import Speculation
from kvscope.analysis.stats import GroupSummary, LatencySummary, RunStatistics
from kvscope.analysis.stats_words import figure_words
from kvscope.analysis.text import visible
from kvscope.cli.plain_table import duration, number, table, wrapped

_LATENCIES = {"queue": "queue", "ttft": "TTFT", "itl": "ITL", "end_to_end": "end-to-end"}
_NUM_BARS = 10
_BAR_CELLS = 40
_LABEL_CELLS = 14
_SPARKS = " ▁▂▃▄▅▆▇█"


# --- text -------------------------------------------------------------------------------------------------------------


def as_text(name: str, found: RunStatistics, histogram_of: str) -> list[str]:
    """Returns the statistics of the whole run in lines."""
    unit = found.latencies.unit
    lines = [*_head(name, found), "", *_latency_table(found.latencies), "", *_figures(found)]
    if found.occupancy_columns:
        lines += ["", *_occupancy_line(found)]
    if histogram_of != "none":
        lines += _histogram_lines(found, histogram_of, unit)
    return lines


def _head(name: str, found: RunStatistics) -> list[str]:
    figures, speed = found.figures, found.throughput
    ends = Counter(request.finish_reason or "unfinished" for request in figures.requests.values())
    took = f" in {speed.duration_ns / 1e9:,.2f} s" if speed.duration_ns is not None else ""
    what = f"{len(figures.requests)} requests, {speed.num_steps:,} steps{took}"
    lines = wrapped(f"{visible(name)}: {what}", first="", rest="    ")
    if figures.config is not None:
        config = figures.config
        where = f" on {visible(config.device)} ({visible(config.dtype)})" if found.latencies.unit == "ns" else ""
        lines += wrapped(
            f"{visible(config.model)}{where}, {config.num_gpu_blocks - 1} blocks of {config.block_size} tokens"
        )
    parts = [f"{count} {'ended by ' if reason in ('stop', 'length') else ''}{reason}" for reason, count in ends.items()]
    parts += [f"{figures.num_rejected} refused"] if figures.num_rejected else []
    parts += [f"{figures.num_failed_steps} failed step"] if figures.num_failed_steps else []
    lines += wrapped(", ".join(parts) or "no requests")
    if found.latencies.unit == "steps":
        lines += wrapped("A scripted run without a clock: times are in steps.")
    return lines


def _latency_table(summary: LatencySummary) -> list[str]:
    head = ("ms" if summary.unit == "ns" else "steps", "mean", "p50", "p90", "p95", "p99", "max", "of")
    return table(head, [(label, *_row(getattr(summary, key), summary.unit)) for key, label in _LATENCIES.items()])


def _row(found: Distribution | None, unit: Unit) -> Sequence[str]:
    if found is None:
        return ("–",) * 6 + ("0",)
    values = (found.mean, found.p50, found.p90, found.p95, found.p99, found.largest)
    return (*(duration(value, unit) for value in values), number(found.num_values))


def _figures(found: RunStatistics) -> list[str]:
    return [line for label, text in figure_words(found) for line in _labelled(label, text)]


def _labelled(label: str, text: str) -> list[str]:
    return wrapped(text, first=f"  {label:<{_LABEL_CELLS}}", rest=" " * (_LABEL_CELLS + 2))


def _occupancy_line(found: RunStatistics) -> list[str]:
    most = max((column for column in found.occupancy_columns), default=0.0)
    sparks = "".join(_SPARKS[min(-(-int(column * 800) // 100), 8)] for column in found.occupancy_columns)
    return [f"  {'live blocks':<{_LABEL_CELLS}}{sparks}", f"  {'':<{_LABEL_CELLS}}steps left to right, peak {most:.0%}"]


def _histogram_lines(found: RunStatistics, name: str, unit: Unit) -> list[str]:
    values: list[int] = []
    for time in found.requests:
        values += time.itls if name == "itl" else [value for value in (getattr(time, name),) if value is not None]
    bars = histogram(values, _NUM_BARS) if unit == "ns" else whole_histogram(values, _NUM_BARS)
    if not bars:
        return []
    most = max(bar.num_values for bar in bars)
    rows = []
    for bar in bars:
        cells = round(bar.num_values / most * _BAR_CELLS) or (1 if bar.num_values else 0)
        low, high = duration(bar.low, unit), duration(bar.high, unit)
        rows.append((low if low == high else f"{low} – {high}", number(bar.num_values), "█" * cells))
    left, middle = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    head = f"  {_LATENCIES[name]}, {'ms' if unit == 'ns' else 'steps'}"
    return ["", head, *(f"  {label:>{left}}  {count:>{middle}}  {bar}".rstrip() for label, count, bar in rows)]


def groups_text(groups: Iterable[GroupSummary]) -> list[str]:
    """Returns a table of the groups."""
    rows = []
    unit = "ms"
    for group in groups:
        summary = group.latencies
        unit = "ms" if summary.unit == "ns" else "steps"
        row = [visible(group.name), number(group.num_requests), number(group.num_preemptions)]
        for value in (summary.queue, summary.ttft, summary.itl):
            row += [duration(value.p50, summary.unit), duration(value.p99, summary.unit)] if value else ["–", "–"]
        rows.append(row)
    head = (unit, "of", "preempt", "queue50", "p99", "TTFT50", "p99", "ITL50", "p99")
    return ["", *table(head, rows)]


def requests_text(found: RunStatistics) -> list[str]:
    """Returns a table of all requests, by arrival."""
    unit = found.latencies.unit
    rows = []
    for time in found.requests:
        request = found.figures.requests[time.request_id]
        rows.append(
            (
                visible(time.request_id),
                number(request.num_prompt_tokens),
                number(request.num_output_tokens),
                number(request.admissions[0].num_hit_tokens if request.admissions else 0),
                number(len(request.preempted_steps)),
                duration(time.queue, unit),
                duration(time.ttft, unit),
                duration(_mean(time.itls), unit),
                duration(max(time.itls, default=None), unit),
                request.finish_reason or "–",
            )
        )
    times = "ms" if unit == "ns" else "steps"
    head = (times, "prompt", "out", "hit", "pre", "queue", "TTFT", "ITL", "max", "end")
    return ["", *table(head, rows, indent="")]


def _mean(values: Collection[int]) -> float | None:
    return sum(values) / len(values) if values else None


def warnings_text(found: RunStatistics) -> list[str]:
    """Returns the wrong readings that lie near, each as a paragraph."""
    lines: list[str] = []
    for warning in found.warnings:
        lines += wrapped(warning.text, first="! ", rest="  ")
    return ["", *lines] if lines else []


def findings_text(findings: Iterable[Finding]) -> list[str]:
    """Returns what the detectors found, each as a paragraph."""
    lines: list[str] = []
    for finding in findings:
        lines += wrapped(str(finding.sentence), first="", rest="  ")
    return ["", *lines] if lines else ["", "Detectors: nothing found."]


# --- JSON -------------------------------------------------------------------------------------------------------------


def as_json(
    name: str, found: RunStatistics, groups: Iterable[GroupSummary], findings: Iterable[Finding] | None
) -> dict[str, Any]:
    """Returns everything, times in `unit`; `findings` is None where nobody looked for them."""
    figures, speed, hits = found.figures, found.throughput, found.hits
    return {
        "file": name,
        "unit": found.latencies.unit,
        "num_steps": speed.num_steps,
        "num_requests": len(figures.requests),
        "num_refused": figures.num_rejected,
        "num_failed_steps": figures.num_failed_steps,
        "latencies": latencies_json(found.latencies),
        "throughput": {
            **dataclasses.asdict(speed),
            "prompt_tokens_per_second": speed.per_second(speed.num_prompt_tokens),
            "computed_prompt_tokens_per_second": speed.per_second(speed.num_computed_prompt_tokens),
            "output_tokens_per_second": speed.per_second(speed.num_output_tokens),
        },
        "budget_use": found.budget_use,
        "batch_sizes": _optional(found.batch_sizes),
        "num_waiting": _optional(found.num_queued),
        "hits": {**dataclasses.asdict(hits), "hit_rate": hits.hit_rate},
        "preemptions": {
            "num_preemptions": len(figures.preemptions),
            "list": figures.preemptions,
            "num_lost_tokens": figures.num_lost_tokens,
            "num_recomputed_tokens": figures.num_recomputed_tokens,
        },
        "stop_steps": dict(figures.stops),
        "stop_steps_while_waiting": dict(figures.stops_with_waiting),
        "num_empty_steps": figures.num_empty_steps,
        "drafts": _speculation_json(found.speculation),
        "occupancy": _optional(found.occupancy),
        "times": None
        if found.times is None
        else {**dataclasses.asdict(found.times), "between_ns": found.times.between_ns},
        "warnings": [dataclasses.asdict(warning) for warning in found.warnings],
        "findings": None if findings is None else [_finding_json(finding) for finding in findings],
        "groups": [
            {
                "name": group.name,
                "num_requests": group.num_requests,
                "num_preemptions": group.num_preemptions,
                "latencies": latencies_json(group.latencies),
            }
            for group in groups
        ],
        "requests": [_request_json(figures.requests[time.request_id], time) for time in found.requests],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "num_steps": finding.num_steps,
        "request_ids": finding.request_ids,
        "figures": finding.figures,
        "sentence": finding.sentence.text,
    }


def latencies_json(summary: LatencySummary) -> dict[str, Any]:
    """Returns the distributions by name."""
    return {key: _optional(getattr(summary, key)) for key in _LATENCIES}


def _speculation_json(found: Speculation | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        **dataclasses.asdict(found),
        "acceptance_rate": found.acceptance_rate,
        "mean_acceptance_length": found.mean_acceptance_length,
        "tokens_computed_per_emitted": found.tokens_computed_per_emitted,
    }


def _optional(record: Any) -> dict[str, Any] | None:
    return None if record is None else dataclasses.asdict(record)


def _request_json(request: RequestFigures, time: RequestLatency) -> dict[str, Any]:
    return {
        "id": request.request_id,
        "priority": request.priority,
        "cache_salt": request.cache_salt,
        "lora_name": request.lora_name,
        "num_prompt_tokens": request.num_prompt_tokens,
        "num_output_tokens": request.num_output_tokens,
        "arrival_step": request.arrival_step,
        "first_admitted_step": request.first_admitted_step,
        "first_token_step": request.first_token_step,
        "finished_step": request.finished_step,
        "finish_reason": request.finish_reason,
        "num_hit_tokens": request.num_hit_tokens,
        "num_own_hit_tokens": request.num_own_hit_tokens,
        "preempted_steps": request.preempted_steps,
        "num_lost_tokens": request.num_lost_tokens,
        "num_recomputed_tokens": request.num_recomputed_tokens,
        "input_processing": time.input_processing,
        "queue": time.queue,
        "ttft": time.ttft,
        "end_to_end": time.end_to_end,
        "itls": list(time.itls),
    }
