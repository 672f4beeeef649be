"""Reads conditions: `free_blocks < 4`, `preempted`, `request == "req-7" and waiting_steps > 20`.

Grammar: `or` over `and` over `not` over comparisons; parentheses; numbers, quoted texts, `true`, `false`, and the names
of `fields`. Nothing is ever evaluated as Python. An error says what is wrong, where, and what was perhaps meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn, cast

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
    fields_of,
)
from kvscope.analysis.conditions.fields import FIELDS, Field, FieldKind
from kvscope.analysis.text import cell_width, visible
from kvscope.errors import UsageError, bounded

MAX_CHARACTERS = 1_000
MAX_DEPTH = 40
"""Parentheses and `not` within each other; far more than anybody writes, far less than Python's stack."""

_COMPARATORS = ("==", "!=", "<=", ">=", "<", ">")
_WORDS = ("and", "or", "not", "true", "false")
_INSTEAD = {"=": "==", "&&": "and", "||": "or", "!": "not", "&": "and", "|": "or", "===": "==", "<>": "!="}
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>-?\d[\d_]*(?:\.\d+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>===|==|!=|<=|>=|<>|&&|\|\||[<>()=!&|])""",
    re.VERBOSE,
)


class ConditionError(UsageError):
    """A condition cannot be read. `column` counts characters from 0; `reason` is the message without the place."""

    def __init__(self, text: str, column: int, reason: str) -> None:
        super().__init__(f"column {column + 1}: {reason}")
        self.text = text
        self.column = column
        self.reason = bounded(reason)

    def pointed(self) -> tuple[str, str, str]:
        """Returns the condition as it is shown, a caret below the place, and the reason."""
        return visible(self.text), " " * cell_width(visible(self.text[: self.column])) + "^", self.reason


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """number, name, text, sign, or end."""
    text: str
    column: int


def parse_condition(text: str) -> Condition:
    """Returns the condition. Raises `ConditionError`."""
    parser = _Parser(text)
    node = parser.whole()
    fields = list(fields_of(node))
    return Condition(
        text=text.strip(),
        node=node,
        is_of_request=any(field.scope == "request" for field in fields),
        has_happening=any(field.is_happening for field in fields),
    )


class _Parser:
    """Recursive descent over the tokens of one condition."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > MAX_CHARACTERS:
            self._fail(MAX_CHARACTERS, f"a condition has at most {MAX_CHARACTERS} characters, this one {len(text)}")
        self._tokens = self._split()
        self._place = 0
        self._depth = 0

    def _fail(self, column: int, reason: str) -> NoReturn:
        raise ConditionError(self._text, column, reason)

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                if self._text[at] in "\"'":
                    self._fail(at, "this text has no closing quote")
                if self._text[at] in "+-*/%":
                    self._fail(at, "there is no arithmetic in conditions: compare a field with a number")
                self._fail(at, f"{visible(self._text[at])} means nothing here")
            kind = found.lastgroup or ""
            if kind != "space":
                tokens.append(_Token(kind, found[0], at))
            at = found.end()
        return [*tokens, _Token("end", "", len(self._text.rstrip()))]

    @property
    def _now(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._now
        if token.kind != "end":
            self._place += 1
        return token

    def _takes(self, text: str) -> bool:
        if self._now.text == text and self._now.kind in ("name", "sign"):
            self._place += 1
            return True
        if self._now.kind == "sign" and _INSTEAD.get(self._now.text) == text:
            self._fail(self._now.column, f"write {text} instead of {self._now.text}")
        return False

    def whole(self) -> Node:
        if self._now.kind == "end":
            self._fail(0, "a condition is missing, like free_blocks < 4 or preempted")
        node = self._either()
        token = self._now
        if token.kind != "end":
            if token.text == ")":
                self._fail(token.column, "this ) has no ( before it")
            self._fail(token.column, f"and or or is missing before {visible(token.text)}")
        return node

    def _either(self) -> Node:
        node = self._both()
        while self._takes("or"):
            node = Either(node, self._both())
        return node

    def _both(self) -> Node:
        node = self._negated()
        while self._takes("and"):
            node = Both(node, self._negated())
        return node

    def _negated(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(self._now.column, f"more than {MAX_DEPTH} conditions within each other")
        node = Not(self._negated()) if self._takes("not") else self._simple()
        self._depth -= 1
        return node

    def _simple(self) -> Node:
        opening = self._now
        if self._takes("("):
            node = self._either()
            if not self._takes(")"):
                self._fail(opening.column, "this ( has no ) behind it")
            return node
        return self._comparison()

    def _comparison(self) -> Node:
        start = self._now
        left = self._operand()
        sign = self._now
        if sign.text not in _COMPARATORS:
            if sign.kind == "sign" and _INSTEAD.get(sign.text) in _COMPARATORS:
                self._fail(sign.column, f"write {_INSTEAD[sign.text]} instead of {sign.text}")
            return self._alone(start, left)
        self._take()
        target = self._now
        right = self._operand(beside=left)
        self._check_kinds(sign, left, right, (start, target))
        behind = self._now
        if behind.text in _COMPARATORS:
            self._fail(behind.column, f"one comparison at a time: write and before a second {behind.text}")
        return Compare(left, cast("Comparator", sign.text), right)

    def _alone(self, start: _Token, operand: Operand) -> Node:
        if isinstance(operand, Literally):
            self._fail(start.column, f"{visible(start.text)} is compared with nothing: name a field, as in step >= 300")
        if operand.kind == "text":
            example = operand.values[0] if operand.values else "req-7"
            self._fail(start.column, f'{operand.name} is a text: compare it, as in {operand.name} == "{example}"')
        if operand.kind == "number" and not operand.is_happening:
            self._fail(start.column, f"{operand.name} is a number: compare it, as in {operand.name} > 0")
        return Holds(operand)

    def _operand(self, beside: Operand | None = None) -> Operand:
        """Reads a field or a value. `beside`: what it is compared with, to guess what was meant."""
        token = self._take()
        if token.kind == "number":
            return Literally(float(token.text.replace("_", "")))
        if token.kind == "text":
            return Literally(re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL))
        if token.text in ("true", "false"):
            return Literally(token.text == "true")
        if token.kind == "end":
            self._fail(token.column, "something is missing at the end")
        if token.kind != "name" or token.text in _WORDS:
            self._fail(token.column, f"a field or a value belongs here, not {visible(token.text)}")
        field = FIELDS.get(token.text)
        return self._unknown(token, beside) if field is None else field

    def _unknown(self, token: _Token, beside: Operand | None) -> NoReturn:
        if isinstance(beside, Field) and beside.kind == "text":
            word = re.match(r"[^\s()]+", self._text[token.column :])
            assert word is not None
            self._fail(token.column, f'a text stands in quotes: "{visible(word[0])}"')
        nearest = get_close_matches(token.text.lower(), FIELDS, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]}?" if nearest else "kvscope find --fields lists all of them"
        self._fail(token.column, f"there is no field {token.text}: {hint}")

    def _check_kinds(self, sign: _Token, left: Operand, right: Operand, places: tuple[_Token, _Token]) -> None:
        kinds = _kind(left), _kind(right)
        if isinstance(left, Literally) and isinstance(right, Literally):
            self._fail(sign.column, "two values without a field: name one, as in step >= 300")
        for field, other, token in ((left, right, places[1]), (right, left, places[0])):
            if isinstance(field, Field) and isinstance(other, Field) and other.kind != field.kind == "text":
                meant = _nearest(other.name, field.values) if field.values else other.name
                self._fail(token.column, f'a text stands in quotes: "{meant}"')
        if kinds[0] != kinds[1]:
            self._fail(places[1].column, f"{_named(left)} cannot be compared with {_named(right)}")
        if kinds[0] != "number" and sign.text not in ("==", "!="):
            self._fail(sign.column, f"{_named(left)} is only equal or not: == or !=")
        for field, value, token in ((left, right, places[1]), (right, left, places[0])):
            if isinstance(field, Field) and field.values and isinstance(value, Literally):
                self._check_value(token, field, str(value.value))

    def _check_value(self, token: _Token, field: Field, value: str) -> None:
        if value not in field.values:
            nearest = _nearest(value, field.values)
            self._fail(token.column, f'{field.name} is never "{visible(value)}": did you mean "{nearest}"?')


def _kind(operand: Operand) -> FieldKind:
    if isinstance(operand, Field):
        return operand.kind
    if isinstance(operand.value, bool):
        return "flag"
    return "text" if isinstance(operand.value, str) else "number"


def _nearest(text: str, values: Sequence[str]) -> str:
    """Returns the value that is most like a text, whatever letters are capitals."""
    by_letters = {value.lower(): value for value in values}
    return by_letters[get_close_matches(text.lower(), by_letters, n=1, cutoff=0.0)[0]]


_KIND_NAMES: dict[FieldKind, str] = {"number": "a number", "flag": "yes or no", "text": "a text"}


def _named(operand: Operand) -> str:
    if isinstance(operand, Field):
        return f"{operand.name} ({_KIND_NAMES[operand.kind]})"
    return _KIND_NAMES[_kind(operand)]
