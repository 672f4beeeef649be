"""What-if answers as text of 80 columns and as JSON with the field names of the what-if cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from kvscope.analysis.decision_words import some
from kvscope.analysis.latencies import Unit, latencies
from kvscope.analysis.percentiles import Distribution
from kvscope.analysis.run_figures import RunFigures
from kvscope.analysis.stats import LatencySummary, latency_summary, throughput
from kvscope.analysis.step_time_model import StepTimeModel
from kvscope.analysis.text import visible
from kvscope.analysis.whatif import Reproduction, Sweep, WhatIf
from kvscope.analysis.workload_run import RunNotes
from kvscope.cli.comparison_report import (
    comparison_json,
    difference_text,
    figures_text,
    latency_json,
    requests_text,
    throughput_json,
)
from kvscope.cli.plain_table import duration, number, table, wrapped
from kvscope.engine.scheduling.progress import Stuck

_LATENCY_NAMES = {"ttft": "TTFT", "queue": "queue", "itl": "ITL", "end_to_end": "end-to-end"}


# --- text -------------------------------------------------------------------------------------------------------------


def as_text(name: str, found: WhatIf, reproduction: Reproduction) -> list[str]:
    """Returns the answer in lines."""
    changes = ", ".join(f"{key} {old} → {new}" for key, (old, new) in found.settings.items()) or "nothing changed"
    lines = wrapped(f"{visible(name)}: {changes}", first="", rest="    ")
    lines += wrapped(_arrivals(found.arrivals))
    lines += reproduction_text(reproduction)
    if found.model is not None:
        lines += model_text(found.model)
    lines += ["", *difference_text(found.comparison.first_difference)]
    lines += ["", *figures_text(found.comparison, "base", "changed")]
    unit = _unit(found)
    lines += ["", *_latency_text(found, unit)]
    lines += requests_text(found.comparison, "base", "changed")
    lines += _notes_text(found)
    return lines


def _arrivals(arrivals: str) -> str:
    if arrivals == "steps":
        return "Requests arrive at their recorded steps; figures are in steps, there is no clock."
    return "Requests arrive at their recorded times. Every time below is an estimate, for base and changed alike."


def reproduction_text(reproduction: Reproduction) -> list[str]:
    """Says whether the recording's own settings give the recording again."""
    if reproduction.differs_in_step is None:
        return wrapped(
            f"Check: its own settings repeat the recording, all {reproduction.num_steps} steps, event for event."
        )
    return wrapped(
        f"CHECK FAILED: with its own settings the run leaves the recording in step {reproduction.differs_in_step}; "
        "what follows is not to be trusted from there on."
    )


def model_text(model: StepTimeModel) -> list[str]:
    """Says what the step time model is and how far it is off."""
    error = model.error
    left_out = f"; {error.num_left_out} far off were left out of the fit" if error.num_left_out else ""
    return [
        *wrapped(
            f"Step time ≈ {model.base_ns / 1e6:.3f} ms + {model.prefill_token_ns / 1e3:.2f} µs a prefill token + "
            f"{model.decode_token_ns / 1e3:.2f} µs a decode + {model.token_pair_ns / 1e3:.4f} µs a token of context "
            "read."
        ),
        *wrapped(
            f"Fitted to {error.num_steps} steps: off by {error.median:.1%} at the median, {error.p90:.1%} at p90, "
            f"{error.largest:.0%} at worst, {error.total:+.1%} in total{left_out}."
        ),
        *(wrapped("The fit is poor: single times are guesses.", first="! ") if error.is_poor else []),
    ]


def _latency_text(found: WhatIf, unit: Unit) -> list[str]:
    base, changed = _summary(found.comparison.base, unit), _summary(found.comparison.changed, unit)
    estimated = "ms, estimated" if unit == "ns" else "steps"
    rows = []
    for key, label in _LATENCY_NAMES.items():
        left, right = getattr(base, key), getattr(changed, key)
        rows.append((label, *_three(left, unit), *_three(right, unit)))
    lines = table((estimated, "base mean", "p50", "p99", "changed mean", "p50", "p99"), rows)
    speeds = [throughput(figures) for figures in (found.comparison.base, found.comparison.changed)]
    if unit == "ns":
        rates = [speed.per_second(speed.num_output_tokens) for speed in speeds]
        lines += wrapped(f"Output tokens a second, estimated: {number(rates[0])} → {number(rates[1])}.")
    else:
        rates = [speed.num_output_tokens / max(speed.num_steps, 1) for speed in speeds]
        lines += wrapped(f"Output tokens a step: {number(rates[0], 2)} → {number(rates[1], 2)}.")
    return lines


def _three(found: Distribution | None, unit: Unit) -> tuple[str, str, str]:
    if found is None:
        return "–", "–", "–"
    return duration(found.mean, unit), duration(found.p50, unit), duration(found.p99, unit)


def _summary(figures: RunFigures, unit: Unit) -> LatencySummary:
    return latency_summary(latencies(figures, unit), unit)


def _unit(found: WhatIf) -> Unit:
    return "ns" if found.model is not None else "steps"


def _notes_text(found: WhatIf) -> list[str]:
    lines: list[str] = []
    for name, stuck, notes in (("base", found.base_stuck, found.base_notes), ("changed", found.stuck, found.notes)):
        for note in notes_of(stuck, notes):
            lines += wrapped(f"{name}: {note}", first="! ", rest="  ")
    for note in _setting_notes(found):
        lines += wrapped(note, first="! ")
    return ["", *lines] if lines else []


def _setting_notes(found: WhatIf) -> list[str]:
    """Returns what a reader must know of the comparison as a whole."""
    notes = []
    if found.num_refused_in_recording:
        notes.append(
            f"{found.num_refused_in_recording} requests that the recorded engine refused are not part of the workload."
        )
    config = found.comparison.base.config
    if "block_size" in found.settings and "num_gpu_blocks" not in found.settings and config is not None:
        old, new = found.settings["block_size"]
        num_blocks = config.num_gpu_blocks - 1
        notes.append(
            f"The pool keeps its {num_blocks} blocks and holds {num_blocks * new:,} tokens instead of "
            f"{num_blocks * old:,}; add --set num_gpu_blocks={num_blocks * old // new + 1} to keep its size."
        )
    return notes


def notes_of(stuck: Stuck | None, notes: RunNotes) -> Iterator[str]:
    """Yields what a reader must know of a simulated run."""
    if stuck is not None:
        yield f"{stuck.kind} noticed in step {stuck.step}, because of {visible(stuck.request_id)}: {stuck.reason}"
    if notes.num_made_up_tokens:
        names = some([f"{visible(key)} ({count})" for key, count in notes.num_made_up_tokens.items()], 4)
        yield (
            f"{notes.num_made_up_tokens.total()} output tokens are made up, as these ran on beyond what the recording "
            f"knows of them: {names}"
        )
    if notes.num_undrafted_samplings:
        yield (
            f"{notes.num_undrafted_samplings.total()} samplings of {len(notes.num_undrafted_samplings)} requests are "
            "more than the recording has: what would have been drafted after them is unknown, and nothing is"
        )
    if notes.refused:
        yield f"an engine refuses {some([visible(key) for key in notes.refused], 4)}: longer than max_model_len"
    if notes.cut_short:
        yield f"max_model_len ended {some([visible(key) for key in notes.cut_short], 4)} before its recorded output"
    if notes.is_cut_off:
        yield "the run was stopped at its step limit"


# --- JSON -------------------------------------------------------------------------------------------------------------


def as_json(found: WhatIf, reproduction: Reproduction) -> dict[str, Any]:
    """Returns the answer with the field names of the what-if cases, and more."""
    unit = _unit(found)
    base, changed = found.comparison.base, found.comparison.changed
    return {
        "changed_settings": {key: {"from": old, "to": new} for key, (old, new) in found.settings.items()},
        "arrivals": found.arrivals,
        "reproduces_recording": reproduction.differs_in_step is None,
        "reproduction": dataclasses.asdict(reproduction),
        "stuck": {"base": _stuck(found.base_stuck), "changed": _stuck(found.stuck)},
        **comparison_json(found.comparison),
        "latencies": {
            "unit": unit,
            "is_estimate": unit == "ns",
            "base": latency_json(_summary(base, unit)),
            "changed": latency_json(_summary(changed, unit)),
        },
        "throughput": {name: throughput_json(figures) for name, figures in (("base", base), ("changed", changed))},
        "step_time_model": None if found.model is None else dataclasses.asdict(found.model),
        "notes": {
            "base": list(notes_of(found.base_stuck, found.base_notes)),
            "changed": list(notes_of(found.stuck, found.notes)),
            "both": _setting_notes(found),
            "num_refused_in_recording": found.num_refused_in_recording,
        },
    }


def _stuck(stuck: Stuck | None) -> dict[str, Any] | None:
    return None if stuck is None else dataclasses.asdict(stuck)


# --- sweep ------------------------------------------------------------------------------------------------------------


def sweep_as_text(sweep: Sweep) -> list[str]:
    """Returns the sweep as a table; the recording's own value has a star."""
    unit: Unit = "ns" if sweep.model is not None else "steps"
    rows = []
    for row in sweep.rows:
        found = _summary(row.figures, unit)
        speed = throughput(row.figures)
        rate = speed.per_second(speed.num_output_tokens) if unit == "ns" else speed.num_output_tokens / speed.num_steps
        rows.append(
            (
                f"{row.value}{' *' if row.is_recorded else ''}{' stuck' if row.stuck else ''}",
                number(row.figures.num_steps),
                number(len(row.figures.preemptions)),
                number(row.figures.num_recomputed_tokens),
                number(row.figures.num_hit_tokens),
                *_two(found.ttft, unit),
                *_two(found.itl, unit),
                number(rate, 1 if unit == "ns" else 2),
            )
        )
    per = "tok/s" if unit == "ns" else "tok/step"
    head = ("", "steps", "preempt", "twice", "hits", "TTFT50", "TTFT99", "ITL50", "ITL99", per)
    besides = "".join(f", {key}={value}" for key, value in sweep.settings.items())
    lines = wrapped(f"{sweep.name} (* as recorded){besides}", first="", rest="    ")
    lines += wrapped(_arrivals(sweep.arrivals))
    if sweep.model is not None:
        lines += model_text(sweep.model)
    lines += ["", *table(head, rows, indent="")]
    lines += wrapped(
        f"preempt: preemptions. twice: tokens computed twice. hits: prefix hit tokens. TTFT, ITL: p50 and p99 in "
        f"{'ms, estimated' if unit == 'ns' else 'steps'}.",
        first="",
        rest="",
    )
    notes = [f"{row.value}: {note}" for row in sweep.rows for note in notes_of(row.stuck, row.notes)]
    for note in notes:
        lines += wrapped(note, first="! ")
    return lines


def _two(found: Distribution | None, unit: Unit) -> tuple[str, str]:
    return ("–", "–") if found is None else (duration(found.p50, unit), duration(found.p99, unit))


def sweep_as_json(sweep: Sweep) -> dict[str, Any]:
    """Returns the sweep's rows."""
    unit: Unit = "ns" if sweep.model is not None else "steps"
    return {
        "setting": sweep.name,
        "besides": sweep.settings,
        "arrivals": sweep.arrivals,
        "unit": unit,
        "is_estimate": unit == "ns",
        "step_time_model": None if sweep.model is None else dataclasses.asdict(sweep.model),
        "rows": [
            {
                "value": row.value,
                "is_recorded": row.is_recorded,
                "stuck": _stuck(row.stuck),
                "preemptions": len(row.figures.preemptions),
                "recomputed_total": row.figures.num_recomputed_tokens,
                "hit_tokens_total": row.figures.num_hit_tokens,
                "evictions": row.figures.num_evicted_blocks,
                "stop_steps": dict(row.figures.stops),
                "min_free": row.figures.min_free_blocks,
                "latencies": latency_json(_summary(row.figures, unit)),
                "throughput": throughput_json(row.figures),
                "notes": list(notes_of(row.stuck, row.notes)),
            }
            for row in sweep.rows
        ],
    }
