"""Reads the steps of a recording, trusting nothing: rows become events again.

Nothing here grows with the length of the recording.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from kvscope import events as ev
from kvscope.errors import RecordingError
from kvscope.recording import layouts as at
from kvscope.recording.packing import MAX_VALUE, pack_one, some_token_ids, unpack, unpack_token_ids
from kvscope.recording.row_types import SampledRow, StepFigures
from kvscope.recording.rows import decode_events
from kvscope.replay.numbered_tables import NumberedTables
from kvscope.replay.step_chunk import StepChunk

_STEPS_A_CHUNK = 128
_ARRIVED = at.KIND_OF[ev.RequestArrived]
_EVENT_COLUMNS = "seq, kind, request, block, a, b, data, hashes"
_FIGURE_COLUMNS = "step, token_budget, time_ns, schedule_ns, forward_ns, sample_ns, update_ns, record_ns, num_events"

_DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
    StopIteration,
    struct.error,
    msgspec.MsgspecError,
)
"""What decoding makes of a damaged row."""


class RecordingFile(NumberedTables):
    """One recording, opened for reading."""

    # --- steps --------------------------------------------------------------------------------------------------------

    def steps(self, first_step: int, last_step: int) -> Iterator[tuple[int, list[ev.Event]]]:
        """Yields each step with its events. Raises `RecordingError` where a step or one of its events is missing."""
        for chunk, step, events in self._chunks(first_step, last_step, ""):
            if len(events) != chunk.figures_of(step).num_events:
                raise RecordingError(
                    f"{self.path}: step {step} holds {len(events)} of its {chunk.figures_of(step).num_events} "
                    "events; the recording is damaged"
                )
            yield step, events

    def select_events(
        self, kinds: Collection[type[ev.Event]], first_step: int, last_step: int
    ) -> Iterator[tuple[int, list[ev.Event]]]:
        """Yields each step with its events of some kinds. See `Timeline.select_events`."""
        numbers = {at.KIND_OF[kind] for kind in kinds}
        if {ev.BlockEvicted, ev.BlockAllocated, ev.BlockCached}.intersection(kinds):
            numbers.add(at.BLOCK_STEPS)
        condition = f" AND kind IN ({', '.join(map(str, sorted(numbers)))})"
        for _, step, events in self._chunks(first_step, last_step, condition):
            yield step, [event for event in events if type(event) in kinds]

    def _chunks(
        self, first_step: int, last_step: int, condition: str
    ) -> Iterator[tuple[StepChunk, int, list[ev.Event]]]:
        """Yields each step with those of its events that meet a condition in SQL; empty for all."""
        for begin in range(first_step, last_step + 1, _STEPS_A_CHUNK):
            end = min(begin + _STEPS_A_CHUNK - 1, last_step)
            span = (begin, end)
            between = "WHERE step BETWEEN ? AND ?"
            figures = [StepFigures(*row) for row in self.rows(f"SELECT {_FIGURE_COLUMNS} FROM steps {between}", span)]
            sampled = self.rows(f"SELECT step, request_list, num_tokens, token_ids FROM sampled_tokens {between}", span)
            rows = self.rows(f"SELECT step, {_EVENT_COLUMNS} FROM events {between}{condition} ORDER BY step, seq", span)
            chunk = StepChunk(
                self, {row.step: row for row in figures}, {row[0]: SampledRow(*row[1:]) for row in sampled}
            )
            self.read_lists({row[1] for row in sampled if isinstance(row[1], int)})
            chunk.read_arrivals([row[3] for row in rows if row[2] == _ARRIVED and isinstance(row[3], int)])
            events_of: dict[int, list[ev.Event]] = defaultdict(list)
            for step, step_rows in groupby(rows, itemgetter(0)):
                events_of[step] = self._decode(chunk, step, step_rows)
            for step in range(begin, end + 1):
                yield chunk, step, events_of[step]

    def _decode(self, chunk: StepChunk, step: int, rows: Iterable[tuple[Any, ...]]) -> list[ev.Event]:
        events: list[ev.Event] = []
        seq = -1
        try:
            for row in rows:
                seq = row[1]
                columns: Any = row[1:]
                events += decode_events(chunk, step, columns)
        except _DAMAGE as error:
            raise RecordingError(f"{self.path}: event {seq} of step {step} is damaged ({error})") from error
        return events

    def request_events(self, request_id: str, first_step: int, last_step: int) -> Iterator[tuple[int, ev.Event]]:
        """Yields what is about one request, and the preemptions for its benefit. See `Timeline.request_events`."""
        for number, arrival_step, finished_step in self.rows(
            "SELECT number, arrival_step, finished_step FROM requests WHERE request_id = ? ORDER BY number",
            (request_id,),
        ):
            begin = max(first_step, self.integer(arrival_step) or 0)
            last = self.integer(finished_step)
            end = last_step if last is None else min(last_step, last)
            rows = self.rows(
                f"SELECT step, {_EVENT_COLUMNS} FROM events WHERE step BETWEEN ? AND ? AND (request = ? "
                "OR kind = ? AND a = ? OR kind = ? AND instr(data, ?)) ORDER BY step, seq",
                (begin, end, number, at.REQUEST_PREEMPTED, number, at.BLOCK_STEPS, _character(number)),
            )
            chunk = StepChunk(self, {}, {})
            for row in rows:
                for event in self._decode(chunk, row[0], [row]):
                    if request_id in (getattr(event, "request_id", None), getattr(event, "beneficiary_id", None)):
                        yield row[0], event

    def events_where(self, condition: str, parameters: Sequence[object]) -> Iterator[tuple[int, ev.Event]]:
        """Yields `(step, event)` of the rows that meet a condition in SQL, in order.

        For kinds that lie in their rows alone (and arrivals): no steps, no sampled tokens.
        """
        chunk = StepChunk(self, {}, {})
        for row in self.rows(
            f"SELECT step, {_EVENT_COLUMNS} FROM events WHERE {condition} ORDER BY step, seq", parameters
        ):
            for event in self._decode(chunk, row[0], [row]):
                yield row[0], event

    def prompt_of(self, number: int) -> tuple[int, ...]:
        """Returns a request's prompt tokens."""
        row = self.one("SELECT token_ids FROM prompt_tokens WHERE request = ?", (number,))
        if row is not None:
            return unpack_token_ids(row[0])
        kind = at.KIND_OF[ev.RequestArrived]
        rows = self.rows(
            f"SELECT step, {_EVENT_COLUMNS} FROM events WHERE kind = {kind} AND kind > {at.LAST_FREQUENT_KIND} "
            "AND request = ? AND data IS NOT NULL",  # only one that is stored as JSON has its prompt in the row
            (number,),
        )
        for row in rows:
            for event in self._decode(StepChunk(self, {}, {}), row[0], [row]):
                if isinstance(event, ev.RequestArrived):
                    return event.prompt_token_ids
        raise RecordingError(f"{self.path} lacks the prompt tokens of request {self.name_of(number)}")

    def arrival_of(
        self,
        number: int,
        queue_position: int,
        row: tuple[Any, ...] | None = None,
        packed_prompt: bytes | None = None,
    ) -> ev.RequestArrived:
        """Returns the event of a request's arrival; `row` and `packed_prompt` where they were read already."""
        if row is None:
            rows, prompts = self.arrival_rows((number,))
            row, packed_prompt = rows.get(number), prompts.get(number)
        if row is None:
            raise RecordingError(f"{self.path} lacks the request with number {number}")
        name, max_tokens, time, priority, salt, lora, prompt, sampling, stops, *times_ns = row
        arrival_ns, template_ns, tokenize_ns = times_ns
        return ev.RequestArrived(
            request_id=name,
            prompt_token_ids=self.prompt_of(number) if packed_prompt is None else unpack_token_ids(packed_prompt),
            max_tokens=max_tokens,
            arrival_time=time,
            queue_position=queue_position,
            priority=priority,
            cache_salt=salt,
            lora_name=lora,
            prompt=prompt,
            sampling=msgspec.json.decode(sampling, type=dict[str, Any]) if sampling else {},
            stop_token_ids=msgspec.json.decode(stops, type=tuple[int, ...]) if stops else (),
            arrival_ns=arrival_ns,
            template_ns=template_ns,
            tokenize_ns=tokenize_ns,
        )

    def output_tokens(self, request_id: str, first_step: int, last_step: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yields `(step, tokens)` for the steps in which tokens were appended to the request."""
        if self.meta("has_unpacked_samples"):
            yield from self._output_tokens_by_events(request_id, first_step, last_step)
            return
        row = self.one("SELECT max(number) FROM requests WHERE request_id = ?", (request_id,))
        number = -1 if row is None else row[0]
        places: dict[int, int] = {}
        for step, list_id, counts, token_ids in self.rows(
            "SELECT step, request_list, num_tokens, token_ids FROM sampled_tokens WHERE step BETWEEN ? AND ?",
            (first_step, last_step),
        ):
            place = places.get(list_id)
            if place is None:
                first, offsets = self.list_of(list_id)
                place = places[list_id] = _place_in(offsets, number - first)
            if place < 0:
                continue
            if counts is None:
                yield step, some_token_ids(token_ids, place, 1)
            else:
                before = sum(unpack(counts[:place]))
                yield step, some_token_ids(token_ids, before, sum(unpack(counts[place])))

    def _output_tokens_by_events(
        self, request_id: str, first_step: int, last_step: int
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        for step, events in self.steps(first_step, last_step):
            for event in events:
                if isinstance(event, ev.TokensSampled) and request_id in event.request_ids:
                    place = event.request_ids.index(request_id)
                    counts = event.num_tokens or (1,) * len(event.request_ids)
                    before = sum(counts[:place])
                    yield step, event.token_ids[before : before + counts[place]]

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint_before(self, step: int) -> tuple[int, int | None] | None:
        """Returns step and base of the last checkpoint that lies before a step."""
        row = self.one("SELECT step, base_step FROM checkpoints WHERE step < ? ORDER BY step DESC LIMIT 1", (step,))
        return None if row is None else (row[0], row[1])

    def checkpoint_steps(self) -> list[tuple[int, int | None]]:
        """Returns step and base of all checkpoints, in order."""
        return [(row[0], row[1]) for row in self.rows("SELECT step, base_step FROM checkpoints ORDER BY step")]

    def checkpoint(self, step: int) -> bytes:
        """Returns a checkpoint's bytes."""
        row = self.one("SELECT state FROM checkpoints WHERE step = ?", (step,))
        if row is None or not isinstance(row[0], bytes):
            raise RecordingError(f"{self.path} lacks the checkpoint of step {step}, which others refer to")
        return row[0]


def _place_in(packed: str, number: int) -> int:
    """Returns the place of a number in a packed text, -1 where it is not there."""
    return packed.find(pack_one(number)) if 0 <= number <= MAX_VALUE else -1


def _character(number: int) -> str:
    """Returns the character to look for in packed texts; for a number that has none the empty text, found in all."""
    return pack_one(number) if number <= MAX_VALUE else ""
