"""Two runs side by side as text of 80 columns and as JSON with the field names of the what-if cases."""

from __future__ import annotations

import dataclasses
from typing import Any

from kvscope.analysis.comparison import Comparison, FirstDifference, Pair
from kvscope.analysis.decision_words import count_pairs, decision_text
from kvscope.analysis.run_figures import FailedAllocation, RunFigures
from kvscope.analysis.stats import LatencySummary, throughput
from kvscope.analysis.text import visible
from kvscope.cli.plain_table import number, table, wrapped

_MAX_REQUESTS = 12
_LATENCY_NAMES = ("ttft", "queue", "itl", "end_to_end")


def difference_text(difference: FirstDifference | None, base: str = "base", changed: str = "changed") -> list[str]:
    """Says where two runs first decide differently, and what each decided."""
    if difference is None:
        return ["No difference: every step decides the same."]
    lines = [f"First difference in step {difference.step}:"]
    for name, decision, other in (
        (base, difference.base, difference.changed),
        (changed, difference.changed, difference.base),
    ):
        head = f"  {name:<8} "
        text = "has ended" if decision is None else decision_text(decision, difference.fields, other)
        lines += wrapped(text, first=head, rest=" " * len(head))
    return lines


def figures_text(comparison: Comparison, base_name: str, changed_name: str) -> list[str]:
    """Returns the counts of both runs."""
    return table(
        ("", base_name, changed_name, "change"),
        [(pair.name, number(pair.a), number(pair.b), _signed(pair.b - pair.a)) for pair in count_pairs(comparison)],
    )


def _signed(change: int) -> str:
    return "=" if change == 0 else f"{change:+,.0f}".replace("-", "−")


def requests_text(comparison: Comparison, base_name: str, changed_name: str) -> list[str]:
    """Returns the requests to whom something else happened; nothing where there are none."""
    differing = [pair for pair in comparison.requests if pair.differs]
    if not differing:
        return []
    head = (f"requests ({base_name} → {changed_name})", "admitted", "first token", "finished", "preempted")
    rows = [
        (
            visible(pair.request_id),
            _arrow(pair.first_admitted),
            _arrow(pair.first_token),
            _arrow(pair.finished),
            _arrow(pair.num_preemptions),
        )
        for pair in differing[:_MAX_REQUESTS]
    ]
    more = len(differing) - _MAX_REQUESTS
    lines = ["", *table(head, rows)]
    if more > 0:
        lines.append(f"  … and {more} more of {len(comparison.requests)} requests; --json has all of them")
    return lines


def _arrow(pair: Pair) -> str:
    if not pair.differs:
        return number(pair.base)
    return f"{number(pair.base)} → {number(pair.changed)}"


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Returns two runs' figures side by side, and the requests that differ."""
    base, changed = comparison.base, comparison.changed
    difference = comparison.first_difference
    return {
        "steps": {"base": base.num_steps, "changed": changed.num_steps},
        "first_step_that_decides_differently": None if difference is None else difference.step,
        "first_difference": None if difference is None else dataclasses.asdict(difference),
        "preemptions": {
            "base": len(base.preemptions),
            "changed": len(changed.preemptions),
            "base_list": base.preemptions,
            "changed_list": changed.preemptions,
        },
        "preemptions_per_request": {
            "base": {pair.request_id: pair.num_preemptions.base or 0 for pair in comparison.requests},
            "changed": {pair.request_id: pair.num_preemptions.changed or 0 for pair in comparison.requests},
        },
        "first_admitted_changed": {
            pair.request_id: [pair.first_admitted.base, pair.first_admitted.changed]
            for pair in comparison.requests
            if pair.first_admitted.differs
        },
        "first_admitted_same": [pair.request_id for pair in comparison.requests if not pair.first_admitted.differs],
        "finished_changed": {
            pair.request_id: [pair.finished.base, pair.finished.changed]
            for pair in comparison.requests
            if pair.finished.differs
        },
        "recomputed_total": {"base": base.num_recomputed_tokens, "changed": changed.num_recomputed_tokens},
        "recomputed_per_request": {
            "base": {pair.request_id: pair.num_recomputed_tokens.base for pair in comparison.requests},
            "changed": {pair.request_id: pair.num_recomputed_tokens.changed for pair in comparison.requests},
        },
        "hit_tokens_total": {"base": base.num_hit_tokens, "changed": changed.num_hit_tokens},
        "evictions": {"base": base.num_evicted_blocks, "changed": changed.num_evicted_blocks},
        "stop_steps": {"base": dict(base.stops), "changed": dict(changed.stops)},
        "last_alloc_fail": {
            "base": _failed(base.last_failed_allocation),
            "changed": _failed(changed.last_failed_allocation),
        },
        "min_free": {"base": base.min_free_blocks, "changed": changed.min_free_blocks},
        "requests": [dataclasses.asdict(pair) for pair in comparison.requests],
    }


def latency_json(summary: LatencySummary) -> dict[str, Any]:
    """Returns the distributions by name; values in the summary's unit."""
    return {
        key: None if (found := getattr(summary, key)) is None else dataclasses.asdict(found) for key in _LATENCY_NAMES
    }


def throughput_json(figures: RunFigures) -> dict[str, Any]:
    """Returns what a run has done in what time."""
    speed = throughput(figures)
    return {
        "num_prompt_tokens": speed.num_prompt_tokens,
        "num_output_tokens": speed.num_output_tokens,
        "num_steps": speed.num_steps,
        "duration_ns": speed.duration_ns,
        "output_tokens_per_second": speed.per_second(speed.num_output_tokens),
        "output_tokens_per_step": speed.num_output_tokens / max(speed.num_steps, 1),
    }


def _failed(failed: FailedAllocation | None) -> dict[str, Any] | None:
    if failed is None:
        return None
    event = failed.event
    return {
        "step": failed.step,
        "id": event.request_id,
        "phase": event.phase,
        "reason": event.reason,
        "need_step": event.need_step,
        "need_full": event.need_full,
        "free": event.num_free_blocks,
        "watermark": event.watermark_blocks,
    }
