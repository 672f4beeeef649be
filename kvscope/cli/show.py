"""`kvscope show`: one step, or one request after a step, as text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(show)


def show(
    file: Annotated[Path, typer.Argument(help="A recording.", show_default=False)],
    step: Annotated[int | None, typer.Option(help="Which step; the last one by default.", show_default=False)] = None,
    request: Annotated[str | None, typer.Option(help="Show this request after the step.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as one object of JSON.")] = False,
) -> None:
    """Show what a step decided and what it left: budget, decisions, queues with verdicts, pool."""
    from kvscope.analysis.step_report import step_record, step_report
    from kvscope.cli.reading import json_text, last_step_of, request_in
    from kvscope.replay.replay import open_recording

    with open_recording(file) as timeline:
        at = last_step_of(timeline) if step is None else step
        if request is not None:
            record = _request_record(timeline, at, request_in(timeline, request))
            print(json_text(record) if as_json else "\n".join(_request_lines(record)))
        elif as_json:
            print(json_text(step_record(timeline, at)))
        else:
            print("\n".join(step_report(timeline, at)))


def _request_record(timeline: Any, step: int, request_id: str) -> dict[str, Any]:
    """Returns the request's figures after the step, its block table, and what happened to it in the step."""
    import msgspec

    from kvscope.analysis.request_view import request_facts
    from kvscope.cli.reading import event_record

    moment = timeline.at(step)
    facts = request_facts(timeline, moment, request_id)
    live = moment.state.requests.get(request_id)
    record: dict[str, Any] = {"step": step, **msgspec.to_builtins(facts)}
    record.pop("hit", None)
    record["block_ids"] = [] if live is None else list(live.block_ids)
    record["events"] = [event_record(at, event) for at, event in timeline.request_events(request_id, step, step)]
    return record


def _request_lines(record: dict[str, Any]) -> list[str]:
    from kvscope.analysis.text import visible
    from kvscope.cli.reading import event_text

    width = max(map(len, record))
    lines = []
    for name, value in record.items():
        if name == "events":
            lines += [f"{name.ljust(width)}  {len(value)} in this step", *(f"  {event_text(event)}" for event in value)]
        else:
            text = " ".join(map(str, value)) if isinstance(value, list) else "–" if value is None else str(value)
            lines.append(f"{name.ljust(width)}  {visible(text)}")
    return lines
