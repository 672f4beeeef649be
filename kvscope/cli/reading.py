"""What the reading commands share: ranges and names checked, records as text and as JSON."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, get_args

import msgspec

from kvscope.analysis.text import visible
from kvscope.errors import RecordingError, UsageError
from kvscope.events import Event
from kvscope.replay.timeline import Timeline

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}

_MAX_LIST = 24
"""Values of a list that a line of text shows; JSON has all of them."""


def json_text(record: object) -> str:
    """Returns the record as JSON on one line."""
    return msgspec.json.encode(record).decode()


def last_step_of(timeline: Timeline) -> int:
    """Returns the last step. Raises `RecordingError` where there is none."""
    if timeline.last_step < timeline.first_step:
        raise RecordingError(f"{timeline.path} has no step yet")
    return timeline.last_step


def step_range(timeline: Timeline, first_step: int | None, last_step: int | None) -> tuple[int, int]:
    """Returns the steps asked for, all by default. Raises `UsageError` where they are not in the recording."""
    if timeline.last_step < timeline.first_step:
        return timeline.first_step, timeline.last_step
    begin = timeline.first_step if first_step is None else first_step
    end = timeline.last_step if last_step is None else last_step
    if not timeline.first_step <= begin <= end <= timeline.last_step:
        raise UsageError(
            f"steps {begin} to {end} are not a part of {timeline.path}: "
            f"it has steps {timeline.first_step} to {timeline.last_step}"
        )
    return begin, end


def request_in(timeline: Timeline, request_id: str) -> str:
    """Returns the id. Raises `RecordingError` with the nearest one where the recording has no such request."""
    if timeline.request(request_id) is None:
        nearest = get_close_matches(request_id, timeline.request_ids(), n=1, cutoff=0.0)
        hint = f"; the nearest is {visible(nearest[0])}" if nearest else ""
        raise RecordingError(f"{timeline.path} has no request {visible(request_id)}{hint}")
    return request_id


def kind_named(name: str) -> type[Event]:
    """Returns the kind of event. Raises `UsageError` with the nearest one where there is no such kind."""
    by_lower = {known.lower(): kind for known, kind in _KINDS.items()}
    kind = by_lower.get(name.lower().replace("_", "").replace("-", ""))
    if kind is None:
        nearest = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.0)[0]
        raise UsageError(f"there is no kind of event {visible(name)}; did you mean {by_lower[nearest].__name__}?")
    return kind


def event_record(step: int, event: Event) -> dict[str, Any]:
    """Returns an event as plain data: its step, its kind, then its fields. Bytes become base64."""
    fields = msgspec.to_builtins(event)
    return {"step": step, "kind": fields.pop("type"), **fields}


def event_text(record: dict[str, Any]) -> str:
    """Returns an event record as one line that is safe for a terminal."""
    step, kind, *_ = record.values()
    fields = (f"{name}={_value(value)}" for name, value in record.items() if name not in ("step", "kind"))
    return visible(f"{step:>6}  {kind}  {' '.join(fields)}".rstrip())


def _value(value: object) -> str:
    if isinstance(value, list | tuple) and len(value) > _MAX_LIST:
        return f"{json_text(value[:_MAX_LIST])[:-1]},… {len(value)} in all]"
    return value if isinstance(value, str) else json_text(value)
