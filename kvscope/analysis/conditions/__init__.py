"""Conditions over the fields of a step and its requests: where an engine pauses, where a replay stops.

`parse_condition` reads one, `matches` holds it against a step, `StopSearch` finds where a recording stops at it.
"""

from kvscope.analysis.conditions.evaluate import Watch, matches
from kvscope.analysis.conditions.expression import Condition
from kvscope.analysis.conditions.look import RequestLook, StateLook, StepLook
from kvscope.analysis.conditions.parser import ConditionError, parse_condition
from kvscope.analysis.conditions.stops import Stop, StopSearch

__all__ = [
    "Condition",
    "ConditionError",
    "RequestLook",
    "StateLook",
    "StepLook",
    "Stop",
    "StopSearch",
    "Watch",
    "matches",
    "parse_condition",
]
