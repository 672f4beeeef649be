"""What a section of the check found: rows with a value each, kept in a file as they come, so that none is lost."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure or fact."""

    name: str
    value: float | str
    unit: str = ""
    limit: str = ""
    """What it is held against, in words."""
    is_ok: bool | None = None
    """None where it is held against nothing."""
    is_goal: bool = False
    """A speed that is aimed at: missing it is no error."""

    def line(self) -> str:
        """Returns the row of the table."""
        value = self.value if isinstance(self.value, str) else f"{self.value:,.4g}"
        verdict = "" if self.is_ok is None else "ok" if self.is_ok else "MISSED" if self.is_goal else "WRONG"
        return f"  {self.name:58} {value:>14} {self.unit:9} {self.limit:28} {verdict}".rstrip()


@dataclass(slots=True)
class Rows:
    """The rows of one section."""

    path: Path | None = None
    """Where they are kept, as JSON; rewritten with each one."""
    has_goals: bool = True
    """Without, speeds are held against nothing."""
    rows: list[Row] = field(default_factory=list)

    def add(self, name: str, value: float | str, unit: str = "") -> None:
        """Notes a figure."""
        self._keep(Row(name=name, value=value, unit=unit))

    def check(self, name: str, value: float, limit: float, unit: str = "") -> None:
        """Notes a figure that must not be above its limit; NaN is."""
        self._keep(Row(name=name, value=value, unit=unit, limit=f"at most {limit:.4g}", is_ok=value <= limit))

    def check_equal(self, name: str, value: float, expected: float, unit: str = "") -> None:
        """Notes a figure that must be exactly this."""
        self._keep(Row(name=name, value=value, unit=unit, limit=f"exactly {expected:,.10g}", is_ok=value == expected))

    def goal(self, name: str, value: float, least: float, unit: str = "") -> None:
        """Notes a speed that should reach this."""
        if not self.has_goals:
            self.add(name, value, unit)
            return
        row = Row(name=name, value=value, unit=unit, limit=f"goal {least:.4g}", is_ok=value >= least, is_goal=True)
        self._keep(row)

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """What raises inside is noted as wrong, and what comes behind it has its turn."""
        try:
            yield
        except Exception as error:
            traceback.print_exc(file=sys.stdout)
            message = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            self._keep(Row(name=name, value=message, limit="no error", is_ok=False))

    def _keep(self, row: Row) -> None:
        self.rows.append(row)
        print(row.line(), flush=True)
        if self.path is not None:
            self.path.write_text(json.dumps([asdict(one) for one in self.rows]))


def read_rows(path: Path) -> list[Row]:
    """Returns what a section left; nothing where it left nothing, or was stopped while it wrote."""
    try:
        return [Row(**row) for row in json.loads(path.read_text())]
    except (OSError, ValueError):
        return []


def has_wrong(rows: Sequence[Row]) -> bool:
    """True where something is not as it must be."""
    return any(row.is_ok is False and not row.is_goal for row in rows)


def has_missed(rows: Sequence[Row]) -> bool:
    """True where a goal was missed."""
    return any(row.is_ok is False and row.is_goal for row in rows)
