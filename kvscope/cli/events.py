"""`kvscope events`: the recorded events, of some kinds, of one request, of some steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kvscope.events import Event
    from kvscope.replay.timeline import Timeline


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(events)


def events(
    file: Annotated[Path, typer.Argument(help="A recording.", show_default=False)],
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only events of this kind, like PrefixCacheHit; may be given again.", show_default=False),
    ] = None,
    request: Annotated[str | None, typer.Option(help="Only events about this request.", show_default=False)] = None,
    first_step: Annotated[int | None, typer.Option("--from", help="First step.", show_default=False)] = None,
    last_step: Annotated[int | None, typer.Option("--to", help="Last step, included.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the events as they were recorded, in order, one a line."""
    from kvscope.cli.reading import event_record, event_text, json_text, kind_named, request_in, step_range
    from kvscope.replay.replay import open_recording

    kinds = {kind_named(name) for name in kind or ()}
    with open_recording(file) as timeline:
        begin, end = step_range(timeline, first_step, last_step)
        request_id = None if request is None else request_in(timeline, request)
        for step, event in _selected(timeline, kinds, request_id, begin, end):
            record = event_record(step, event)
            print(json_text(record) if as_json else event_text(record))


def _selected(
    timeline: Timeline, kinds: set[type[Event]], request_id: str | None, begin: int, end: int
) -> Iterator[tuple[int, Event]]:
    if request_id is None:
        steps = timeline.select_events(kinds, begin, end) if kinds else timeline.events(begin, end)
        for step, of_step in steps:
            for event in of_step:
                yield step, event
        return
    for step, event in _about(timeline, request_id, begin, end):
        if not kinds or type(event) in kinds:
            yield step, event


def _about(timeline: Timeline, request_id: str, begin: int, end: int) -> Iterator[tuple[int, Event]]:
    """Yields the events that name the request, those of a whole batch among them."""

    def names_request(event: Any) -> bool:
        ids: Sequence[str] = getattr(event, "request_ids", ())
        return request_id in ids or request_id in (
            getattr(event, "request_id", None),
            getattr(event, "beneficiary_id", None),
        )

    row = timeline.request(request_id)
    if row is not None:  # outside of its life nothing is about it
        begin = max(begin, row.arrival_step)
        end = end if row.finished_step is None else min(end, row.finished_step)
    for step, of_step in timeline.events(begin, end):
        for event in of_step:
            if names_request(event):
                yield step, event
