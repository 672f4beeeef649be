"""Whether a condition can hold at all in a column of the timeline: most of a long recording need not be looked at.

A column knows the highest figure, or the sum, of its steps. Each field becomes a range that certainly holds its value
in every step of the column, or the texts that it may have there; fields that columns know nothing of can be anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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


Texts = frozenset[str] | None
"""All texts that a field may have; None for any."""

ANYTHING = Range(-math.inf, math.inf)
EITHER_WAY = Truth(can_hold=True, can_fail=True)


def can_hold(node: Node, column: StepSummary, num_usable_blocks: int) -> bool:
    """Returns False only where the condition holds in no step of the column, for no request."""
    return _truth(node, {**ranges_of(column, num_usable_blocks), **texts_of(column)}).can_hold


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
        "waiting_steps": ANYTHING if column.num_waiting else up_to(0),
    }


def texts_of(column: StepSummary) -> dict[str, Texts]:
    """Returns what is known of fields that are texts.

    Nobody waits in a column without a queue, and who was refused all the same in one of its steps ended in it.
    """
    statuses = {"RUNNING"}
    if column.num_waiting:
        statuses |= {"WAITING", "PREEMPTED"}
    if column.num_finished:
        statuses |= {"FINISHED", "ABORTED"}
    return {
        "status": frozenset(statuses),
        "refused_by": None if column.num_waiting or column.num_finished else frozenset({""}),
        "finish_reason": None if column.num_finished else frozenset({""}),
    }


def _truth(node: Node, known: Mapping[str, Range | Texts]) -> Truth:
    match node:
        case Compare(left, comparator, right):
            if _is_text(left) or _is_text(right):
                return _compared_texts(_texts(left, known), comparator, _texts(right, known))
            return _compared(_range(left, known), comparator, _range(right, known))
        case Holds(field):
            of_field = known.get(field.name, ANYTHING)
            if not isinstance(of_field, Range):
                return EITHER_WAY
            return Truth(can_hold=of_field.high > 0, can_fail=of_field.low <= 0)
        case Not(inner):
            truth = _truth(inner, known)
            return Truth(can_hold=truth.can_fail, can_fail=truth.can_hold)
        case Both(left, right):
            one, other = _truth(left, known), _truth(right, known)
            return Truth(one.can_hold and other.can_hold, one.can_fail or other.can_fail)
        case Either(left, right):
            one, other = _truth(left, known), _truth(right, known)
            return Truth(one.can_hold or other.can_hold, one.can_fail and other.can_fail)
        case _:
            assert_never(node)


def _is_text(operand: Operand) -> bool:
    return isinstance(operand.value, str) if isinstance(operand, Literally) else operand.kind == "text"


def _texts(operand: Operand, known: Mapping[str, Range | Texts]) -> Texts:
    if isinstance(operand, Literally):
        return frozenset({str(operand.value)})
    found = known.get(operand.name)
    return None if isinstance(found, Range) else found


def _compared_texts(left: Texts, comparator: str, right: Texts) -> Truth:
    if left is None or right is None or comparator not in ("==", "!="):
        return EITHER_WAY
    is_same = Truth(can_hold=bool(left & right), can_fail=len(left | right) > 1)
    return is_same if comparator == "==" else Truth(is_same.can_fail, is_same.can_hold)


def _range(operand: Operand, known: Mapping[str, Range | Texts]) -> Range:
    """Returns the range of a number."""
    if isinstance(operand, Literally):
        return Range(float(operand.value), float(operand.value))
    found = known.get(operand.name, ANYTHING)
    return found if isinstance(found, Range) else ANYTHING


def _compared(left: Range, comparator: str, right: Range) -> Truth:
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
