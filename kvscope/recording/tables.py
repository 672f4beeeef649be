"""What a writer keeps outside the event rows: requests and their facts, lists of requests, tokens' bytes.

Collects rows while a batch of steps is encoded; `flush` hands them to the database in few statements.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from kvscope import events as ev
from kvscope.recording.packing import pack, pack_token_ids
from kvscope.recording.row_types import MAX_INTEGER, DoesNotFit, SampledRow

_MAX_REMEMBERED_LISTS = 1024
"""Lists of requests that are looked for when one comes again; a decode batch repeats its own for many steps."""


@dataclass(slots=True)
class RequestFacts:
    """The columns of `requests` that are not known at the arrival."""

    number: int
    first_admitted_step: int | None = None
    first_admitted_ns: int | None = None
    first_token_step: int | None = None
    first_token_ns: int | None = None
    finished_step: int | None = None
    finished_ns: int | None = None
    finish_reason: str | None = None
    stop: str | None = None
    num_output_tokens: int | None = None
    num_hit_tokens: int = 0
    num_own_hit_tokens: int = 0
    num_preemptions: int = 0
    num_lost_tokens: int = 0


_FACTS = tuple(name for name in RequestFacts.__slots__ if name != "number")
ARRIVAL_COLUMNS = (
    "number",
    "request_id",
    "prompt",
    "num_prompt_tokens",
    "max_tokens",
    "priority",
    "cache_salt",
    "lora_name",
    "sampling",
    "stop_token_ids",
    "arrival_step",
    "arrival_time",
    "arrival_ns",
    "template_ns",
    "tokenize_ns",
)
_NUM_ARRIVAL_COLUMNS = len(ARRIVAL_COLUMNS)

_MAX_ROWS = 64
"""Rows of one statement: nine columns each stay far below SQLite's limit of parameters."""

_UPDATE_FACTS = f"UPDATE requests SET {', '.join(f'{name} = ?' for name in _FACTS)} WHERE number = ?"


@dataclass(slots=True)
class StepClock:
    """What the step's own events put into its row of `steps`."""

    started: ev.StepStarted | None = None
    finished: ev.StepFinished | None = None
    sampled: SampledRow | None = None

    @property
    def end_ns(self) -> int | None:
        """When the step was complete, on the engine's clock."""
        if self.started is None:
            return None
        finished = self.finished or ev.StepFinished()
        durations = finished.schedule_ns + finished.forward_ns + finished.sample_ns + finished.update_ns
        return self.started.time_ns + durations


@dataclass(slots=True)
class TablesToWrite:
    """Implements `WriterTables` for one recording, from its first step on."""

    step: int = -1
    clock: StepClock = field(default_factory=StepClock)
    facts: dict[str, RequestFacts] = field(default_factory=dict)
    """Of the requests that have not ended, by id."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _num_requests: int = 0
    _lists: OrderedDict[tuple[str, ...], int] = field(default_factory=OrderedDict)
    _num_lists: int = 0
    _last_list: tuple[tuple[str, ...], int] | None = None
    """A step has its list twice, and mostly it is that of the step before."""
    _tokens: dict[int, bytes] = field(default_factory=dict)
    _new_requests: list[tuple[object, ...]] = field(default_factory=list)
    _new_prompts: list[tuple[object, ...]] = field(default_factory=list)
    _new_lists: list[tuple[object, ...]] = field(default_factory=list)
    _new_tokens: list[tuple[object, ...]] = field(default_factory=list)
    _changed: dict[int, RequestFacts] = field(default_factory=dict)

    def begin_step(self, step: int) -> None:
        """Makes room for the step's clock and sampled tokens."""
        self.step = step
        self.clock = StepClock()

    def number_of(self, request_id: str) -> int:
        number = self._numbers.get(request_id)
        if number is None:
            number = self._new_number(request_id)
            self._new_requests.append((number, request_id, *(None,) * (_NUM_ARRIVAL_COLUMNS - 2)))
        return number

    def _new_number(self, request_id: str) -> int:
        request_id.encode()  # a lone surrogate raises here, not when the row is written
        self._num_requests += 1
        self._numbers[request_id] = self._num_requests
        return self._num_requests

    def list_of(self, request_ids: tuple[str, ...]) -> int:
        if self._last_list is not None and request_ids == self._last_list[0]:
            return self._last_list[1]
        list_id = self._lists.get(request_ids)
        if list_id is None:
            try:
                numbers = list(map(self._numbers.__getitem__, request_ids))
            except KeyError:
                numbers = list(map(self.number_of, request_ids))
            first = min(numbers, default=0)
            offsets = pack([number - first for number in numbers])
            self._num_lists += 1
            list_id = self._lists[request_ids] = self._num_lists
            self._new_lists.append((list_id, first, len(numbers), offsets))
            if len(self._lists) > _MAX_REMEMBERED_LISTS:
                self._lists.popitem(last=False)
        self._last_list = (request_ids, list_id)
        return list_id

    def put_arrival(self, event: ev.RequestArrived) -> int:
        figures = (event.max_tokens, event.priority, event.arrival_ns, event.template_ns, event.tokenize_ns)
        fitting = [min(max(figure, -MAX_INTEGER), MAX_INTEGER) for figure in figures]
        number = self._new_number(event.request_id)  # a name that was used before is another request now
        self.facts[event.request_id] = RequestFacts(number)
        sampling = _json(event.sampling)
        row = (
            number,
            event.request_id,
            _storable(event.prompt),
            len(event.prompt_token_ids),
            fitting[0],
            fitting[1],
            _storable(event.cache_salt),
            _storable(event.lora_name),
            sampling,
            _json(event.stop_token_ids),
            self.step,
            event.arrival_time,
            *fitting[2:],
        )
        self._new_requests.append(row)
        self._new_prompts.append((number, pack_token_ids(event.prompt_token_ids)))
        texts = (event.prompt, event.cache_salt, event.lora_name)
        if tuple(fitting) != figures or tuple(map(_storable, texts)) != texts:
            raise DoesNotFit
        if event.sampling and sampling is None:
            raise DoesNotFit
        return number

    def put_step_started(self, event: ev.StepStarted) -> None:
        if self.clock.started is not None or event.step != self.step:
            raise DoesNotFit
        self.clock.started = event

    def put_step_finished(self, event: ev.StepFinished) -> None:
        if self.clock.finished is not None:
            raise DoesNotFit
        self.clock.finished = event

    def put_sampled(self, row: SampledRow) -> None:
        if self.clock.sampled is not None:
            raise DoesNotFit
        self.clock.sampled = row

    def put_token_bytes(self, token_ids: Sequence[int], token_bytes: Sequence[bytes]) -> None:
        known = self._tokens
        new: dict[int, bytes] = {}
        for token_id, text in zip(token_ids, token_bytes, strict=True):
            if known.get(token_id, text) != text or new.setdefault(token_id, text) != text:
                raise DoesNotFit
        for token_id, text in new.items():
            if token_id not in known:
                known[token_id] = text
                self._new_tokens.append((token_id, text))

    def changed(self, request_id: str) -> RequestFacts | None:
        """Returns the facts of a live request, to be written with the next flush."""
        facts = self.facts.get(request_id)
        if facts is not None:
            self._changed[facts.number] = facts
        return facts

    def reject(self, event: ev.RequestRejected) -> None:
        """Notes that the request never came to a queue."""
        number = self.number_of(_storable(event.request_id) or "")
        self._changed[number] = RequestFacts(number, finish_reason="rejected", finished_step=self.step)

    def flush(self, connection: sqlite3.Connection) -> None:
        """Writes what has come together since the last flush."""
        insert_rows(connection, "requests", self._new_requests, columns=ARRIVAL_COLUMNS)
        insert_rows(connection, "prompt_tokens", self._new_prompts)
        insert_rows(connection, "request_lists", self._new_lists)
        insert_rows(connection, "tokens", self._new_tokens)
        if self._changed:
            rows = [(*(getattr(facts, name) for name in _FACTS), number) for number, facts in self._changed.items()]
            connection.executemany(_UPDATE_FACTS, rows)
        for rows_written in (self._new_requests, self._new_prompts, self._new_lists, self._new_tokens, self._changed):
            rows_written.clear()


def insert_rows(
    connection: sqlite3.Connection,
    table: str,
    rows: Sequence[tuple[object, ...]],
    *,
    columns: Sequence[str] = (),
) -> None:
    """Inserts the rows, many with one statement.

    Each statement lets go of the interpreter's lock once. With a statement a row, an engine that computes in Python
    would be given the lock back only after its switch interval, 5 ms a row.
    """
    done = 0
    while done < len(rows):
        size = min(_MAX_ROWS, 1 << ((len(rows) - done).bit_length() - 1))  # few sizes: statements are cached
        row = f"({', '.join('?' * len(rows[0]))})"
        names = f" ({', '.join(columns)})" if columns else ""
        connection.execute(
            f"INSERT INTO {table}{names} VALUES {', '.join([row] * size)}",
            [value for row_values in rows[done : done + size] for value in row_values],
        )
        done += size


def _storable(text: str | None) -> str | None:
    """Returns the text with what UTF-8 cannot hold (lone surrogates) written out."""
    return None if text is None else text.encode(errors="backslashreplace").decode()


def _json(value: object) -> str | None:
    """Returns the value as JSON; None where it is empty or holds what JSON cannot."""
    try:
        return msgspec.json.encode(value).decode() if value else None
    except (TypeError, ValueError):
        return None
