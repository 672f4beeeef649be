"""Whether a condition can hold at all in a column of the timeline: most of a long recording need not be looked at.

A column knows the highest figure, or the sum, of its steps. Each field becomes a range that certainly holds its value
in every step of the column; fields that columns know nothing of can be anything.
"""

from __future__ import annotations

import math
from typing import NamedTuple, assert_never

from kvscope.analysis.conditions.expression import Both, Compare, Either, Holds, Literally, Node, Not, Operand
from kvscope.replay.timeline import StepSummary


class Range(NamedTuple):
    """All values that a number may have, both ends included."""

    low: float
    high: float


class Truth(NamedTuple):
    """What a condition may be."""

    can_hold: bool
    can_fail: bool


ANYTHING = Range(-math.inf, math.inf)
EITHER_WAY = Truth(can_hold=True, can_fail=True)


def can_hold(node: Node, column: StepSummary, num_usable_blocks: int) -> bool:
    """Returns False only where the condition holds in no step of the column, for no request."""
    return _truth(node, ranges_of(column, num_usable_blocks)).can_hold


def ranges_of(column: StepSummary, num_usable_blocks: int) -> dict[str, Range]:
    """Returns what is known of each field."""

    def up_to(number: float) -> Range:
        return Range(0, number)

    num_scheduled = column.num_prefill_tokens + column.num_decode_tokens + column.num_draft_tokens
    return {
        "step": Range(column.first_step, column.first_step + column.num_steps - 1),
        "free_blocks": Range(num_usable_blocks - column.num_live_blocks, num_usable_blocks),
        "live_blocks": up_to(column.num_live_blocks),
        "cached_blocks": up_to(column.num_cached_blocks),
        "shared_blocks": up_to(column.num_live_blocks),
        "running": up_to(column.num_running),
        "waiting": up_to(column.num_waiting),
        "token_budget": up_to(column.token_budget),
        "unused_tokens": up_to(column.token_budget),
        "scheduled_tokens": up_to(num_scheduled),
        "prefill_tokens": up_to(column.num_prefill_tokens),
        "decode_tokens": up_to(column.num_decode_tokens),
        "draft_tokens": up_to(column.num_draft_tokens),
        "step_ms": up_to(column.step_ns / 1e6),
        "schedule_ms": up_to(column.step_ns / 1e6),
        "forward_ms": up_to(column.step_ns / 1e6),
        "stalled": up_to(column.num_stalled),
        "failed": up_to(column.num_failed),
        "preempted": up_to(column.num_preemptions),
        "evicted": up_to(column.num_evicted_blocks),
        "hit": up_to(column.num_hits),
        "finished": up_to(column.num_finished),
        "aborted": up_to(column.num_finished),
    }


def _truth(node: Node, ranges: dict[str, Range]) -> Truth:
    match node:
        case Compare(left, comparator, right):
            return _compared(_range(left, ranges), comparator, _range(right, ranges))
        case Holds(field):
            known = ranges.get(field.name, ANYTHING)
            return Truth(can_hold=known.high > 0, can_fail=known.low <= 0)
        case Not(inner):
            truth = _truth(inner, ranges)
            return Truth(can_hold=truth.can_fail, can_fail=truth.can_hold)
        case Both(left, right):
            one, other = _truth(left, ranges), _truth(right, ranges)
            return Truth(one.can_hold and other.can_hold, one.can_fail or other.can_fail)
        case Either(left, right):
            one, other = _truth(left, ranges), _truth(right, ranges)
            return Truth(one.can_hold or other.can_hold, one.can_fail and other.can_fail)
        case _:
            assert_never(node)


def _range(operand: Operand, ranges: dict[str, Range]) -> Range | None:
    """Returns the range of a number, None for a text."""
    if not isinstance(operand, Literally):
        return None if operand.kind == "text" else ranges.get(operand.name, ANYTHING)
    return None if isinstance(operand.value, str) else Range(float(operand.value), float(operand.value))


def _compared(left: Range | None, comparator: str, right: Range | None) -> Truth:
    if left is None or right is None:
        return EITHER_WAY
    match comparator:
        case "<":
            return Truth(left.low < right.high, left.high >= right.low)
        case "<=":
            return Truth(left.low <= right.high, left.high > right.low)
        case ">":
            return Truth(left.high > right.low, left.low <= right.high)
        case ">=":
            return Truth(left.high >= right.low, left.low < right.high)
        case _:
            can_equal = left.low <= right.high and right.low <= left.high
            must_equal = left.low == left.high == right.low == right.high
            is_same = Truth(can_equal, not must_equal)
            return is_same if comparator == "==" else Truth(is_same.can_fail, is_same.can_hold)
