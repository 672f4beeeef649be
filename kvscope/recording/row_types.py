"""What a row of `events` is made of, and what lies outside it: the seam between the codec and storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kvscope import events as ev

MAX_INTEGER = (1 << 63) - 1

Columns = tuple[int, int | None, int | None, int | None, int | None, str | None, bytes | None]
"""kind, request, block, a, b, data, hashes."""


class DoesNotFit(ValueError):
    """A value has no place in its column; the event goes into its row as JSON."""


class EventRow(NamedTuple):
    """A row of `events` without its step."""

    seq: int
    kind: int
    request: int | None
    block: int | None
    a: int | None
    b: int | None
    data: str | None
    hashes: bytes | None


class StepFigures(NamedTuple):
    """What a reader needs of a row of `steps` to rebuild the events of the step."""

    step: int
    token_budget: int | None
    time_ns: int | None
    schedule_ns: int | None
    forward_ns: int | None
    sample_ns: int | None
    update_ns: int | None
    record_ns: int | None
    num_events: int


class SampledRow(NamedTuple):
    """A row of `sampled_tokens` without its step. `num_tokens` is packed; None where it is one for each request."""

    request_list: int
    num_tokens: str | None
    token_ids: bytes


class WriterTables(Protocol):
    """What an encoder puts outside the row."""

    def number_of(self, request_id: str) -> int:
        """Returns the request's number; a new one where the name is new."""
        ...

    def list_of(self, request_ids: tuple[str, ...]) -> int:
        """Returns the id of this list of requests. Raises `DoesNotFit`."""
        ...

    def put_arrival(self, event: ev.RequestArrived) -> int:
        """Stores the request and returns its new number. Raises `DoesNotFit`."""
        ...

    def put_step_started(self, event: ev.StepStarted) -> None:
        """Raises `DoesNotFit` where the step has one, or is another."""
        ...

    def put_step_finished(self, event: ev.StepFinished) -> None: ...

    def put_sampled(self, row: SampledRow) -> None:
        """Raises `DoesNotFit` where the step has one."""
        ...

    def put_token_bytes(self, token_ids: Sequence[int], token_bytes: Sequence[bytes]) -> None:
        """Raises `DoesNotFit` where a token is known with other bytes."""
        ...


class ReaderTables(Protocol):
    """What a decoder fetches from outside the row. All raise `RecordingError` where it is missing."""

    def name_of(self, number: int) -> str: ...

    def requests_of(self, list_id: int) -> tuple[str, ...]: ...

    def arrival_of(self, number: int, queue_position: int) -> ev.RequestArrived: ...

    def figures_of(self, step: int) -> StepFigures: ...

    def sampled_in(self, step: int) -> SampledRow: ...

    def bytes_of(self, token_ids: Sequence[int]) -> tuple[bytes, ...]: ...


Encoder = Callable[[WriterTables, Any], Columns]
Decoder = Callable[[ReaderTables, int, Any, Any, Any, Any, Any, Any], ev.Event]
