"""`kvscope check`: every invariant on every step of recordings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kvscope.analysis.check import Violation
    from kvscope.cli.progress_line import ProgressLine

VIOLATED = 1
"""Exit code where an invariant does not hold in any of the files."""
_STEPS_A_REPORT = 200


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(check)


def check(
    files: Annotated[list[Path], typer.Argument(help="Recordings.", show_default=False)],
    all_: Annotated[bool, typer.Option("--all", help="Every violation, not only each file's first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each file.")] = False,
) -> None:
    """Check that every invariant holds in every step, and that rows and seeks say what the events say.

    Exit code 1: one does not hold. Warnings name what vLLM itself breaks in a known case, and are no violations.
    """
    from kvscope.analysis.check import check_recording
    from kvscope.cli.progress_line import ProgressLine
    from kvscope.replay.replay import open_recording

    has_violation = False
    progress = ProgressLine()
    for file in files:
        with open_recording(file) as timeline:
            num_steps = timeline.last_step - timeline.first_step + 1
            on_step = _progress(progress, file, num_steps)
            found = list(_until_first(check_recording(timeline, on_step), wants_all=all_))
            progress.clear()
        wrong = [violation for violation in found if not violation.is_warning]
        has_violation |= bool(wrong)
        if as_json:
            print(
                json.dumps(
                    {
                        "file": str(file),
                        "num_steps": num_steps,
                        "holds": not wrong,
                        "violations": [violation_as_json(violation) for violation in found],
                    },
                    ensure_ascii=False,
                )
            )
        else:
            for violation in found:
                print(f"{file}: {describe(violation)}")
            if not wrong:
                print(f"{file}: every invariant holds in all {num_steps} steps")
    if has_violation:
        raise typer.Exit(VIOLATED)


def _progress(line: ProgressLine, file: Path, num_steps: int) -> Callable[[int], None]:
    """Returns what shows how many steps were looked at."""

    def show(num_done: int) -> None:
        if num_done % _STEPS_A_REPORT == 0:
            line.running(f"{file.name}: {num_done:,} of {num_steps:,} steps ({num_done / num_steps:.0%})")

    return show


def _until_first(violations: Iterator[Violation], *, wants_all: bool) -> Iterator[Violation]:
    """Yields all, or what comes up to the first that is no warning."""
    for violation in violations:
        yield violation
        if not wants_all and not violation.is_warning:
            return


def describe(violation: Violation) -> str:
    """Returns a violation as one line."""
    from kvscope.analysis.text import visible

    kind = "warning" if violation.is_warning else "violation"
    place = f"step {violation.step}" + (f", {violation.event}" if violation.event else "")
    return visible(f"{kind} of {violation.check} in {place}: {violation.message}")


def violation_as_json(violation: Violation) -> dict[str, Any]:
    """Returns a violation with its fields' names."""
    return {
        "check": violation.check,
        "step": violation.step,
        "event": violation.event,
        "message": violation.message,
        "is_warning": violation.is_warning,
    }
