"""What a form shows beside its fields: names, meanings, errors, and the lines below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import wrap
from kvscope.analysis.text import visible
from kvscope.tui.view.lines import Line, Span, fit, sentence_line

VALUE_COLUMNS = 16
"""Of a field's line to type; a longer text scrolls in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One line of a form."""

    name: str
    text: str = ""
    """What stands in it when the form opens."""
    default: str = ""
    """What holds while it is empty."""
    meaning: str = ""
    choices: tuple[str, ...] = ()
    """Where these are all that it can be: space goes from one to the next."""


def name_columns(fields: Sequence[FormField]) -> int:
    """Returns the width of the names."""
    return max((len(field.name) for field in fields), default=0) + 2


def name_line(field: FormField, *, is_current: bool) -> Line:
    return (Span(f" {field.name}", "bold" if is_current else "text"),)


def beside_line(field: FormField, error: str, width: int) -> Line:
    """Returns what stands to the right of a field: what is wrong with it, or what it means."""
    if error:
        return (Span(" "), Span(fit(f"✗ {visible(error)}", max(width - 1, 0)), "bad"))
    return (Span(" "), Span(fit(visible(field.meaning), max(width - 1, 0)), "dim"))


def below_lines(field: FormField, error: str, notes: Sequence[Line], width: int, keys: str) -> list[Line]:
    """Returns what stands under the fields: the error or meaning of the current one in full, notes, the keys."""
    choices = f" ({', '.join(field.choices)}: space goes on)" if field.choices else ""
    text = f"✗ {visible(error)}" if error else f"{field.name}: {visible(field.meaning)}{choices}"
    lines: list[Line] = [
        sentence_line(
            row,
            {"plain": "bad" if error else "text", "dim": "dim", "strong": "bold", "figure": "bold", "entity": "bold"},
        )
        for row in wrap((WordSpan(text),), max(width, 10))[:2]
    ]
    return [*lines, *([(), *notes] if notes else []), (), (Span(fit(keys, width), "dim"),)]


def first_error(fields: Sequence[FormField], errors: Mapping[str, str]) -> int | None:
    """Returns the place of the first field with an error."""
    return next((index for index, field in enumerate(fields) if errors.get(field.name)), None)
