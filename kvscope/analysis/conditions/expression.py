"""What a condition is once it is read: a tree of comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvscope.analysis.conditions.fields import Field

Comparator = Literal["==", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Literally:
    """A number, a text, or true and false."""

    value: float | str | bool


Operand = Field | Literally


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values, of one kind."""

    left: Operand
    comparator: Comparator
    right: Operand


@dataclass(frozen=True, slots=True)
class Holds:
    """A flag that is set, or something that happened at least once."""

    field: Field


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    inner: Node


@dataclass(frozen=True, slots=True)
class Both:
    """and"""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Either:
    """or"""

    left: Node
    right: Node


Node = Compare | Holds | Not | Both | Either


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as it was written, and as it was understood.

    One that names a field of a request holds in a step where it holds for at least one request: one that lives after
    the step, or ended in it.
    """

    text: str
    node: Node
    is_of_request: bool
    has_happening: bool
    """It stops at every step in which it holds; another stops where it begins to hold."""

    @property
    def only_request_id(self) -> str | None:
        """The one request for which it can hold, where it asks for one: `request == "req-7" and …`."""
        return _required_id(self.node)


def _required_id(node: Node) -> str | None:
    match node:
        case Both(left, right):
            found = _required_id(left)
            return _required_id(right) if found is None else found
        case Compare(Field(name="request"), "==", Literally(str(value))):
            return value
        case Compare(Literally(str(value)), "==", Field(name="request")):
            return value
        case _:
            return None


def fields_of(node: Node) -> Iterator[Field]:
    """Yields the fields that a tree names, in order."""
    match node:
        case Compare(left, _, right):
            yield from (operand for operand in (left, right) if isinstance(operand, Field))
        case Holds(field):
            yield field
        case Not(inner):
            yield from fields_of(inner)
        case Both(left, right) | Either(left, right):
            yield from fields_of(left)
            yield from fields_of(right)
