"""What a detector found, as a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kvscope.analysis.spans import Sentence

FindingKind = Literal[
    "failed_step",
    "books_do_not_balance",
    "never_fits",
    "preemption_cycle",
    "priority_inversion",
    "head_of_line_blocking",
    "starvation",
    "empty_steps_while_waiting",
    "long_prefill_among_decoders",
    "hits_lost_to_eviction",
    "nearly_shared_prefix",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One pattern, in one stretch of steps."""

    kind: FindingKind
    first_step: int
    last_step: int
    num_steps: int
    """Steps in which it holds; between the first and the last there may be others."""
    request_ids: tuple[str, ...]
    """Whom it is about, then whom it hurts."""
    figures: dict[str, Any]
    sentence: Sentence


def finding(
    kind: FindingKind, steps: list[int], request_ids: tuple[str, ...], figures: dict[str, Any], sentence: Sentence
) -> Finding:
    """Returns a finding that holds in these steps, in ascending order."""
    return Finding(
        kind=kind,
        first_step=steps[0],
        last_step=steps[-1],
        num_steps=len(steps),
        request_ids=request_ids,
        figures=figures,
        sentence=sentence,
    )
