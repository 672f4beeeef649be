"""`kvscope find`: the steps in which a condition begins to hold, or something happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.errors import UsageError

if TYPE_CHECKING:
    from kvscope.analysis.conditions import Condition, Stop
    from kvscope.replay.timeline import Timeline


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(find)


def find(
    file: Annotated[Path | None, typer.Argument(help="A recording.", show_default=False)] = None,
    condition: Annotated[
        str | None, typer.Argument(help="Like 'free_blocks < 4' or 'preempted'.", show_default=False)
    ] = None,
    first_step: Annotated[int | None, typer.Option("--from", help="First step.", show_default=False)] = None,
    last_step: Annotated[int | None, typer.Option("--to", help="Last step, included.", show_default=False)] = None,
    is_first_only: Annotated[bool, typer.Option("--first", help="Only the first one.")] = False,
    is_last_only: Annotated[bool, typer.Option("--last", help="Only the last one.")] = False,
    shows_fields: Annotated[bool, typer.Option("--fields", help="Print every field that a condition may use.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the steps at which a breakpoint with this condition stops. Exit code 1 where there is none.

    Something that happens (preempted, evicted > 0) stops at each step of it, a state (free_blocks < 4) where it begins.
    A condition that names a field of a request (request == "req-7" and waiting_steps > 20) holds where it holds for
    one request, and counts what happened to that one.
    """
    from kvscope.analysis.conditions import parse_condition
    from kvscope.cli.reading import json_text, step_range
    from kvscope.replay.replay import open_recording

    if shows_fields:
        _print_fields()
        return
    if file is None or condition is None:
        raise UsageError("find needs a recording and a condition, like: kvscope find run.db 'free_blocks < 4'")
    if is_first_only and is_last_only:
        raise UsageError("--first and --last exclude each other")
    parsed = parse_condition(condition)
    with open_recording(file) as timeline:
        begin, end = step_range(timeline, first_step, last_step)
        num_found = 0
        for stop in _stops(timeline, parsed, begin, end, is_backwards=is_last_only):
            num_found += 1
            record = {"step": stop.step, "request_ids": stop.request_ids}
            print(json_text(record) if as_json else _line(stop), flush=num_found == 1)
            if is_first_only or is_last_only:
                break
    if not num_found:
        raise typer.Exit(1)


def _stops(timeline: Timeline, condition: Condition, begin: int, end: int, *, is_backwards: bool) -> Iterator[Stop]:
    from kvscope.analysis.conditions import Stop, StopSearch

    search = StopSearch(timeline, condition)
    found = search.backwards(begin, end) if is_backwards else search.forwards(begin, end)
    return (part for part in found if isinstance(part, Stop))


def _line(stop: Stop) -> str:
    from kvscope.analysis.text import visible

    names = " ".join(map(visible, stop.request_ids))
    return f"{stop.step:>6}  {names}".rstrip()


def _print_fields() -> None:
    from kvscope.analysis.conditions.fields import FIELDS

    titles = {"step": "of the step", "both": "of the step, or of one request", "request": "of one request"}
    width = max(map(len, FIELDS))
    for scope, title in titles.items():
        print(title)
        for field in FIELDS.values():
            if field.scope == scope:
                values = f": {' '.join(field.values)}" if field.values else ""
                print(f"  {field.name.ljust(width)}  {field.meaning}{values}")
