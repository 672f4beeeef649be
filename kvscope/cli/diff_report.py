"""Differences of two recordings, or of two steps, as text of 80 columns and as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from kvscope.analysis.decision_words import some, standing_text
from kvscope.analysis.divergence import Divergence, StandingBefore
from kvscope.analysis.latencies import latencies, unit_of
from kvscope.analysis.stats import latency_summary
from kvscope.analysis.step_difference import (
    BLOCK_GLYPHS,
    BlockDifference,
    FigurePair,
    RequestDifference,
    StepDifference,
)
from kvscope.analysis.text import visible
from kvscope.cli.comparison_report import (
    comparison_json,
    difference_text,
    figures_text,
    latency_json,
    requests_text,
)
from kvscope.cli.plain_table import number, table, wrapped

_MAX_MAP_BLOCKS = 2048
_MAP_COLUMNS = 64
_MAX_REQUESTS = 24
_MAX_HAPPENINGS = 24


# --- two recordings ---------------------------------------------------------------------------------------------------


def runs_text(name_a: str, name_b: str, found: Divergence) -> list[str]:
    """Returns the differences of two recordings in lines."""
    lines = [
        *wrapped(f"A {visible(name_a)}", first="", rest="  "),
        *wrapped(f"B {visible(name_b)}", first="", rest="  "),
    ]
    settings = ", ".join(
        f"{visible(name)} {visible(str(ours))} → {visible(str(theirs))}"
        for name, (ours, theirs) in found.settings.items()
    )
    lines += wrapped(f"Settings: {settings or 'the same'}.")
    matched = found.matched
    lines += wrapped(f"Requests are matched by {matched.by}.")
    for label, names in (("A", matched.only_in_a), ("B", matched.only_in_b)):
        if names:
            lines += wrapped(f"Only in {label}: {some([visible(name) for name in names])}.")
    lines += ["", *difference_text(found.comparison.first_difference, "A", "B")]
    if found.before is not None:
        lines += _before_text(*found.before)
    lines += ["", *figures_text(found.comparison, "A", "B")]
    lines += requests_text(found.comparison, "A", "B")
    return lines


def _before_text(a: StandingBefore, b: StandingBefore) -> list[str]:
    if a == b:
        return ["  Both decided from the same queues and the same free blocks:", *_standing_lines("", a)]
    return ["  They decided from different states:", *_standing_lines("A", a), *_standing_lines("B", b)]


def _standing_lines(label: str, standing: StandingBefore) -> list[str]:
    head = f"  {label:<8} "
    return wrapped(standing_text(standing), first=head, rest=" " * len(head))


def runs_json(found: Divergence) -> dict[str, Any]:
    """Returns the differences of two recordings; `base` is A and `changed` is B, under A's ids."""
    unit_a, unit_b = unit_of(found.comparison.base), unit_of(found.comparison.changed)
    return {
        "settings": {name: {"a": ours, "b": theirs} for name, (ours, theirs) in found.settings.items()},
        "matched": dataclasses.asdict(found.matched),
        "before": None
        if found.before is None
        else {"a": dataclasses.asdict(found.before[0]), "b": dataclasses.asdict(found.before[1])},
        **comparison_json(found.comparison),
        "latencies": {
            side: {"unit": unit, **latency_json(latency_summary(latencies(figures, unit), unit))}
            for side, unit, figures in (
                ("base", unit_a, found.comparison.base),
                ("changed", unit_b, found.comparison.changed),
            )
        },
    }


# --- two steps --------------------------------------------------------------------------------------------------------


def steps_text(name: str, found: StepDifference) -> list[str]:
    """Returns the differences of two steps in lines."""
    between = found.between
    assert between is not None, "the command reads all steps in between"
    took = f", {between.duration_ns / 1e6:,.0f} ms" if between.duration_ns is not None else ""
    lines = wrapped(f"{visible(name)}: step {found.step_a} (A) and step {found.step_b} (B)", first="", rest="    ")
    lines += wrapped(f"{between.num_steps} steps{took}, {between.num_scheduled_tokens:,} tokens later.")
    aborted = f" · {between.num_aborted} aborted" if between.num_aborted else ""
    lines += wrapped(
        f"In between: {between.num_preempted} preempted · {between.num_admitted} admitted · {between.num_resumed} "
        f"resumed · {between.num_finished} finished{aborted} · {between.num_evicted_blocks} blocks evicted · "
        f"{between.num_hit_tokens} tokens hit"
    )
    rows = [(pair.name, number(pair.a), number(pair.b), _change(pair)) for pair in found.figures]
    lines += ["", *table(("figures, changed first", "A", "B", "B−A"), rows)]
    lines += ["", "  requests, changed first", *(_request_line(request) for request in found.requests[:_MAX_REQUESTS])]
    if len(found.requests) > _MAX_REQUESTS:
        lines.append(f"  … and {len(found.requests) - _MAX_REQUESTS} more; --json has all of them")
    lines += ["", *_pool_lines(found)]
    if found.happenings:
        lines += ["", "  what happened in between, the rarest first"]
        for step, said in found.happenings[:_MAX_HAPPENINGS]:
            head = f"  {step:>6} "
            lines += wrapped(str(said), first=head, rest=" " * (len(head) + 2))
        if len(found.happenings) > _MAX_HAPPENINGS:
            lines.append(f"  … and {len(found.happenings) - _MAX_HAPPENINGS} more; --json has them")
    return lines


def _change(pair: FigurePair) -> str:
    if not pair.differs:
        return "="
    if pair.a is None or pair.b is None:
        return "–"
    difference = round(pair.b - pair.a, 1)
    return f"{'+' if difference > 0 else '−'}{number(abs(difference))}"


_GLYPHS = {"preempted": "▲", "changed": "≠", "went_on": " ", "same": " "}


def _request_line(request: RequestDifference) -> str:
    status = request.status_a
    if request.change == "preempted":
        times = f" ×{request.num_preemptions}" if request.num_preemptions > 1 else ""
        status = f"{request.status_a}, preempted{times}, {request.status_b}"
    elif request.status_a != request.status_b:
        status = f"{request.status_a} → {request.status_b}"
    parts = [visible(request.request_id), status]
    for label, (before, after) in (("blocks", request.num_blocks), ("computed", request.num_computed_tokens)):
        if before != after:
            parts.append(f"{'+' if after > before else '−'}{abs(after - before)} {label}")
    if request.num_steps_run:
        parts.append(f"ran {request.num_steps_run} steps")
    before_place, after_place = request.queue_position
    if before_place is not None and after_place is not None and before_place != after_place:
        parts.append(f"place {before_place + 1} → {after_place + 1}")
    return "\n".join(wrapped("  ".join(parts), first=f"  {_GLYPHS[request.change]} ", rest="      "))


def _pool_lines(found: StepDifference) -> list[str]:
    counts = found.num_blocks
    kept, lost, new = found.num_published
    lines = wrapped(
        f"pool, B against A: + {counts[BlockDifference.TAKEN]} taken, − {counts[BlockDifference.GIVEN_BACK]} given "
        f"back, ~ {counts[BlockDifference.OTHER_OWNER]} other owner, ■ {counts[BlockDifference.SAME]} same; of the "
        f"cached blocks {kept} stay, {lost} are lost, {new} are new"
    )
    if len(found.blocks) > _MAX_MAP_BLOCKS:
        return lines
    glyphs = "".join(BLOCK_GLYPHS[BlockDifference(change)] for change in found.blocks)
    return lines + [
        f"  {start:>6} {glyphs[start : start + _MAP_COLUMNS]}".rstrip() for start in range(0, len(glyphs), _MAP_COLUMNS)
    ]


def steps_json(found: StepDifference) -> dict[str, Any]:
    """Returns the differences of two steps; blocks as lists of ids."""
    kept, lost, new = found.num_published
    return {
        "step_a": found.step_a,
        "step_b": found.step_b,
        "between": None if found.between is None else dataclasses.asdict(found.between),
        "figures": {pair.name: {"a": pair.a, "b": pair.b} for pair in found.figures},
        "requests": [dataclasses.asdict(request) for request in found.requests],
        "blocks": {
            change.name.lower(): [block_id for block_id, value in enumerate(found.blocks) if value == change]
            for change in (BlockDifference.TAKEN, BlockDifference.GIVEN_BACK, BlockDifference.OTHER_OWNER)
        },
        "cached_blocks": {"kept": kept, "lost": lost, "new": new},
        "happenings": [{"step": step, "tone": said.tone, "text": said.text} for step, said in found.happenings],
    }
