"""Holds a condition against a step."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, assert_never

from kvscope.analysis.conditions.expression import (
    Both,
    Comparator,
    Compare,
    Condition,
    Either,
    Holds,
    Literally,
    Node,
    Not,
    Operand,
)
from kvscope.analysis.conditions.look import RequestLook, StepLook
from kvscope.analysis.conditions.values import StepValues, Value

COMPARE: dict[Comparator, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Matched = frozenset[str]
"""The requests for which a condition holds; `WHOLE_STEP` where it holds for a step; empty where it does not."""

WHOLE_STEP: Matched = frozenset({""})
NOTHING: Matched = frozenset()


def matches(condition: Condition, look: StepLook) -> Matched:
    """Returns for whom the condition holds after the step."""
    values = StepValues(look)
    if not condition.is_of_request:
        return WHOLE_STEP if _holds(condition.node, values.of_step) else NOTHING
    only_id = condition.only_request_id
    if only_id is not None:
        only = look.request(only_id)
        candidates = [] if only is None else [only]
    else:
        candidates = list(look.requests())
    return frozenset(request.request_id for request in candidates if _holds_for(condition.node, values, request))


def _holds_for(node: Node, values: StepValues, request: RequestLook) -> bool:
    return _holds(node, lambda name: values.of_request(name, request))


def _holds(node: Node, value_of: Callable[[str], Value]) -> bool:
    match node:
        case Compare(left, comparator, right):
            return COMPARE[comparator](_value(left, value_of), _value(right, value_of))
        case Holds(field):
            return bool(value_of(field.name))
        case Not(inner):
            return not _holds(inner, value_of)
        case Both(left, right):
            return _holds(left, value_of) and _holds(right, value_of)
        case Either(left, right):
            return _holds(left, value_of) or _holds(right, value_of)
        case _:
            assert_never(node)


def _value(operand: Operand, value_of: Callable[[str], Value]) -> Value:
    return operand.value if isinstance(operand, Literally) else value_of(operand.name)


class Watch:
    """A condition that is held against one step after another, and says where to stop.

    What happens is a stop in every step in which it does. A state that lasts is one where it begins: for a condition on
    requests, where it begins for one more of them.
    """

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self._before: Matched = NOTHING

    def stops_at(self, look: StepLook) -> bool:
        """Takes the next step, and returns whether to stop after it."""
        found = matches(self.condition, look)
        is_new = bool(found if self.condition.has_happening else found - self._before)
        self._before = found
        return is_new
