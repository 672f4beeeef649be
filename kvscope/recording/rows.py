"""Events to rows of the table `events`, and back.

The codec of most kinds follows from their `Layout`; kinds whose figures lie elsewhere (a step's clock in `steps`,
sampled tokens in `sampled_tokens`, an arrival in `requests`) or that hold several lists are written out. An event with
a value that does not fit its column (a token id of four bytes, say) is kept whole, as JSON.

Knows how a row looks, not how it is stored: what lies outside the row is reached through `WriterTables` and
`ReaderTables`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from kvscope import events as ev
from kvscope.recording import layouts as at
from kvscope.recording.layouts import LAYOUTS, Layout
from kvscope.recording.packing import JSON_MARK, pack, pack_token_ids, unpack, unpack_one, unpack_token_ids

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


def encode_events(tables: WriterTables, events: Sequence[ev.Event]) -> Iterator[EventRow]:
    """Yields the rows of a step. Neighbours that are about one block each share a row."""
    run = _BlockRun()
    seq = 0
    while seq < len(events):
        num_taken = run.take(tables, events, seq)
        if num_taken:
            seq += num_taken
            continue
        yield from run.end(tables)
        yield _encode(tables, seq, events[seq])
        seq += 1
    yield from run.end(tables)


def _encode(tables: WriterTables, seq: int, event: ev.Event) -> EventRow:
    try:
        columns = _ENCODERS[type(event)](tables, event)
    except (ValueError, struct.error, KeyError):
        columns = _encode_as_json(tables, event)
    return EventRow(seq, *columns)


def decode_events(tables: ReaderTables, step: int, row: EventRow) -> Sequence[ev.Event]:
    """Returns the events of a row. Raises what a damaged row makes of the decoding."""
    _, kind, request, block, a, b, data, hashes = row
    if kind == at.BLOCK_STEPS:
        return _decode_block_steps(tables, data, hashes)
    if data is not None and data[:1] == JSON_MARK:
        return (_decode_json(data),)
    return (_DECODERS[kind](tables, step, request, block, a, b, data, hashes),)


# --- rows of several events -------------------------------------------------------------------------------------------


class _BlockRun:
    """Neighbouring events of one block each, to be one row.

    `data` has three numbers for each: what it is (see `layouts.ALLOCATED`), the request, the block. `hashes` has the
    hashes of those that have one. An evicted block and its allocation, which follows, are one entry.
    """

    def __init__(self) -> None:
        self._first_seq = 0
        self._events: list[ev.Event] = []
        self._numbers: list[int] = []
        self._hashes: list[int] = []

    def take(self, tables: WriterTables, events: Sequence[ev.Event], seq: int) -> int:
        """Takes the event at `seq` if it is such a one, and returns how many it took."""
        event = events[seq]
        num_taken = 1
        if type(event) is ev.BlockAllocated:
            if len(event.block_ids) != 1:
                return 0
            what = at.ALLOCATED
        elif type(event) is ev.BlockCached:
            if len(event.block_ids) != 1 or len(event.block_hashes) != 1 or event.duplicate_of or event.first_index < 0:
                return 0
            what = at.CACHED + event.first_index
            self._hashes.append(event.block_hashes[0])
        elif type(event) is ev.BlockEvicted:
            if not _is_recycling(event, events[seq + 1] if seq + 1 < len(events) else None):
                return 0
            what = at.RECYCLED
            self._hashes.append(event.block_hashes[0])
            num_taken = 2
        else:
            return 0
        if not self._events:
            self._first_seq = seq
        self._events += events[seq : seq + num_taken]
        self._numbers += (what, tables.number_of(event.request_id), event.block_ids[0])
        return num_taken

    def end(self, tables: WriterTables) -> Iterator[EventRow]:
        """Yields the row of what was taken, and forgets it."""
        if not self._events:
            return
        try:
            hashes = struct.pack(f">{len(self._hashes)}Q", *self._hashes) if self._hashes else None
            yield EventRow(self._first_seq, at.BLOCK_STEPS, None, None, None, None, pack(self._numbers), hashes)
        except (ValueError, struct.error):  # some number does not fit
            for seq, event in enumerate(self._events, self._first_seq):
                yield _encode(tables, seq, event)
        self._events, self._numbers, self._hashes = [], [], []


def _is_recycling(event: ev.BlockEvicted, following: ev.Event | None) -> bool:
    return (
        type(following) is ev.BlockAllocated
        and len(event.block_ids) == len(event.block_hashes) == 1
        and following.block_ids == event.block_ids
        and following.request_id == event.request_id
    )


def _decode_block_steps(tables: ReaderTables, data: Any, hashes: Any) -> list[ev.Event]:
    numbers = iter(unpack(data))
    block_hashes = iter(_unpack_hashes(hashes) if hashes is not None else ())
    name_of = tables.name_of
    events: list[ev.Event] = []
    for what, request, block_id in zip(numbers, numbers, numbers, strict=True):
        request_id, block_ids = name_of(request), (block_id,)
        if what >= at.CACHED:
            cached_hash = (next(block_hashes),)
            events.append(
                ev.BlockCached(
                    request_id=request_id,
                    first_index=what - at.CACHED,
                    block_ids=block_ids,
                    block_hashes=cached_hash,
                )
            )
            continue
        if what == at.RECYCLED:
            evicted_hash = (next(block_hashes),)
            events.append(ev.BlockEvicted(request_id=request_id, block_ids=block_ids, block_hashes=evicted_hash))
        events.append(ev.BlockAllocated(request_id=request_id, block_ids=block_ids))
    return events


# --- the kinds that are written out -----------------------------------------------------------------------------------


def _encode_as_json(tables: WriterTables, event: ev.Event) -> Columns:
    try:
        text = msgspec.json.encode(event).decode()
    except UnicodeEncodeError:
        event = _without_surrogates(event)
        text = msgspec.json.encode(event).decode()
    request_id = getattr(event, "request_id", None)
    request = None if request_id is None else tables.number_of(request_id)
    return (at.KIND_OF[type(event)], request, None, None, None, JSON_MARK + text, None)


def _without_surrogates(event: ev.Event) -> ev.Event:
    """Returns the event with lone surrogates, which no UTF-8 can hold, written out as `\\udc80`."""

    def written_out(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode(errors="backslashreplace").decode()
        if isinstance(value, dict):
            return {written_out(key): written_out(item) for key, item in value.items()}
        return type(value)(map(written_out, value)) if isinstance(value, list | tuple) else value

    return msgspec.structs.replace(event, **{k: written_out(v) for k, v in msgspec.structs.asdict(event).items()})


def _decode_json(data: str) -> ev.Event:
    return msgspec.json.decode(data[1:], type=ev.Event)


def _pack_blocks(block_ids: tuple[int, ...]) -> tuple[int | None, str | None]:
    """Returns the columns `block` and `data` for a list of blocks."""
    if len(block_ids) == 1 and 0 <= block_ids[0] <= MAX_INTEGER:
        return block_ids[0], None
    return None, pack(block_ids)


def _unpack_blocks(block: int | None, data: str | None) -> tuple[int, ...]:
    return unpack(data) if block is None else (block,)  # type: ignore[arg-type]


def _pack_hashes(block_hashes: tuple[int, ...], num_blocks: int) -> bytes:
    if len(block_hashes) != num_blocks:
        raise DoesNotFit
    return struct.pack(f">{num_blocks}Q", *block_hashes)


def _unpack_hashes(hashes: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(hashes) // 8}Q", hashes)


def _encode_block_cached(tables: WriterTables, event: ev.BlockCached) -> Columns:
    """`a` is the first index; `b` how many `duplicate_of` lie behind the block ids in `data`."""
    block_ids, duplicates = event.block_ids, event.duplicate_of
    hashes = _pack_hashes(event.block_hashes, len(block_ids))
    block: int | None
    data: str | None
    num_duplicates = None
    if duplicates:
        block, data, num_duplicates = None, pack(block_ids + duplicates), len(duplicates)
    else:
        block, data = _pack_blocks(block_ids)
    request = tables.number_of(event.request_id)
    return (at.BLOCK_CACHED, request, block, event.first_index, num_duplicates, data, hashes)


def _decode_block_cached(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    block_ids, duplicates = _unpack_blocks(block, data), ()
    if b is not None:
        block_ids, duplicates = block_ids[:-b], block_ids[-b:]  # type: ignore[assignment]
    return ev.BlockCached(
        request_id=tables.name_of(request),
        first_index=a,
        block_ids=block_ids,
        block_hashes=_unpack_hashes(hashes),
        duplicate_of=duplicates,
    )


def _encode_block_evicted(tables: WriterTables, event: ev.BlockEvicted) -> Columns:
    hashes = _pack_hashes(event.block_hashes, len(event.block_ids))
    block, data = _pack_blocks(event.block_ids)
    return (at.KIND_OF[ev.BlockEvicted], tables.number_of(event.request_id), block, None, None, data, hashes)


def _decode_block_evicted(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    return ev.BlockEvicted(
        request_id=tables.name_of(request),
        block_ids=_unpack_blocks(block, data),
        block_hashes=_unpack_hashes(hashes),
    )


def _encode_block_touched(tables: WriterTables, event: ev.BlockTouched) -> Columns:
    """`a` is the number of blocks; their reference counts lie behind them in `data`."""
    if len(event.block_ids) != len(event.ref_cnts):
        raise DoesNotFit
    data = pack(event.block_ids + event.ref_cnts)
    request = tables.number_of(event.request_id)
    return (at.KIND_OF[ev.BlockTouched], request, None, len(event.block_ids), None, data, None)


def _decode_block_touched(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    numbers = unpack(data)
    return ev.BlockTouched(request_id=tables.name_of(request), block_ids=numbers[:a], ref_cnts=numbers[a:])


def _encode_block_released(tables: WriterTables, event: ev.BlockReleased) -> Columns:
    """`data` holds all blocks: `a` of them went to the head, `b` to the tail, the rest is still held."""
    data = pack(event.freed_to_head + event.freed_to_tail + event.still_held)
    num_head, num_tail = len(event.freed_to_head), len(event.freed_to_tail)
    return (at.KIND_OF[ev.BlockReleased], tables.number_of(event.request_id), None, num_head, num_tail, data, None)


def _decode_block_released(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    block_ids = unpack(data)
    return ev.BlockReleased(
        request_id=tables.name_of(request),
        freed_to_head=block_ids[:a],
        freed_to_tail=block_ids[a : a + b],
        still_held=block_ids[a + b :],
    )


def _encode_tokens_scheduled(tables: WriterTables, event: ev.TokensScheduled) -> Columns:
    """`a` is the list of requests. The first `b` of them have one token each; `data` has the counts of the others.

    If there are drafts, there follow in `data` for every request their number and the drafts.
    """
    counts, drafts = event.num_tokens, event.draft_token_ids
    if len(counts) != len(event.request_ids):
        raise DoesNotFit
    num_ones = 0
    for count in counts:
        if count != 1:
            break
        num_ones += 1
    data = pack(counts[num_ones:]) if num_ones < len(counts) else ""
    if drafts:
        data += _pack_drafts(event.request_ids, drafts)
    list_id = tables.list_of(event.request_ids)
    return (at.TOKENS_SCHEDULED, None, None, list_id, num_ones, data or None, None)


def _pack_drafts(request_ids: tuple[str, ...], drafts: dict[str, tuple[int, ...]]) -> str:
    with_drafts = tuple(request_id for request_id in request_ids if drafts.get(request_id))
    if with_drafts != tuple(drafts) or len(set(request_ids)) != len(request_ids):
        raise DoesNotFit
    numbers: list[int] = []
    for request_id in request_ids:
        token_ids = drafts.get(request_id, ())
        numbers.append(len(token_ids))
        numbers.extend(token_ids)
    return pack(numbers)


def _decode_tokens_scheduled(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    request_ids = tables.requests_of(a)
    if data is None:
        return ev.TokensScheduled(request_ids=request_ids, num_tokens=(1,) * b)
    numbers = unpack(data)
    num_counts = len(request_ids) - b
    drafts: dict[str, tuple[int, ...]] = {}
    rest = numbers[num_counts:]
    if rest:
        index = 0
        for request_id in request_ids:
            begin = index + 1
            index = begin + rest[begin - 1]
            if index > begin:
                drafts[request_id] = rest[begin:index]
    return ev.TokensScheduled(
        request_ids=request_ids, num_tokens=(1,) * b + numbers[:num_counts], draft_token_ids=drafts
    )


def _encode_tokens_sampled(tables: WriterTables, event: ev.TokensSampled) -> Columns:
    """All of it lies in `sampled_tokens`."""
    counts = None if event.num_tokens is None else pack(event.num_tokens)
    if len(event.request_ids) != len(event.token_ids if event.num_tokens is None else event.num_tokens):
        raise DoesNotFit
    if event.num_tokens is not None and sum(event.num_tokens) != len(event.token_ids):
        raise DoesNotFit
    token_ids = pack_token_ids(event.token_ids)
    tables.put_sampled(SampledRow(tables.list_of(event.request_ids), counts, token_ids))
    return (at.TOKENS_SAMPLED, None, None, None, None, None, None)


def _decode_tokens_sampled(
    tables: ReaderTables, step: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    sampled = tables.sampled_in(step)
    return ev.TokensSampled(
        request_ids=tables.requests_of(sampled.request_list),
        token_ids=unpack_token_ids(sampled.token_ids),
        num_tokens=None if sampled.num_tokens is None else unpack(sampled.num_tokens),
    )


def _encode_step_started(tables: WriterTables, event: ev.StepStarted) -> Columns:
    tables.put_step_started(event)
    return (at.STEP_STARTED, None, None, None, None, None, None)


def _decode_step_started(
    tables: ReaderTables, step: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    figures = tables.figures_of(step)
    return ev.StepStarted(step=step, token_budget=figures.token_budget or 0, time_ns=figures.time_ns or 0)


def _encode_step_finished(tables: WriterTables, event: ev.StepFinished) -> Columns:
    tables.put_step_finished(event)
    return (at.STEP_FINISHED, None, None, None, None, None, None)


def _decode_step_finished(
    tables: ReaderTables, step: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    figures = tables.figures_of(step)
    return ev.StepFinished(
        schedule_ns=figures.schedule_ns or 0,
        forward_ns=figures.forward_ns or 0,
        sample_ns=figures.sample_ns or 0,
        update_ns=figures.update_ns or 0,
        record_ns=figures.record_ns or 0,
    )


def _encode_request_arrived(tables: WriterTables, event: ev.RequestArrived) -> Columns:
    """`a` is the place in the queue; the rest lies in `requests` and `prompt_tokens`."""
    position = event.queue_position
    if not 0 <= position <= MAX_INTEGER:
        raise DoesNotFit
    return (at.KIND_OF[ev.RequestArrived], tables.put_arrival(event), None, position, None, None, None)


def _decode_request_arrived(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    return tables.arrival_of(request, a)


def _encode_request_finished(tables: WriterTables, event: ev.RequestFinished) -> Columns:
    """`a` is the number of output tokens, `b` the reason, `data` what stopped it."""
    if event.stop is not None and event.stop[:1] == JSON_MARK:
        raise DoesNotFit
    if event.stop is not None:
        event.stop.encode()  # a lone surrogate raises here
    reason = at.FINISH_REASONS.index(event.reason)
    request = tables.number_of(event.request_id)
    return (at.KIND_OF[ev.RequestFinished], request, None, event.num_output_tokens, reason, event.stop, None)


def _decode_request_finished(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    reason: Any = at.FINISH_REASONS[b]
    return ev.RequestFinished(request_id=tables.name_of(request), reason=reason, num_output_tokens=a, stop=data)


def _encode_token_text(tables: WriterTables, event: ev.TokenTextRecorded) -> Columns:
    """`data` has the token ids; their bytes lie in `tokens`."""
    data = pack(event.token_ids)
    if len(event.token_ids) != len(event.token_bytes):
        raise DoesNotFit
    tables.put_token_bytes(event.token_ids, event.token_bytes)
    return (at.KIND_OF[ev.TokenTextRecorded], None, None, None, None, data, None)


def _decode_token_text(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    token_ids = unpack(data)
    return ev.TokenTextRecorded(token_ids=token_ids, token_bytes=tables.bytes_of(token_ids))


# --- the kinds that follow from their layout --------------------------------------------------------------------------

Encoder = Callable[[WriterTables, Any], Columns]
Decoder = Callable[[ReaderTables, int, Any, Any, Any, Any, Any, Any], ev.Event]


def _layout_encoder(event_type: type[ev.Event], layout: Layout) -> Encoder:
    kind = at.KIND_OF[event_type]
    codes = {
        field: {value: code for code, value in enumerate(values)} for field, values in (layout.codes or {}).items()
    }

    def figure(tables: WriterTables, event: ev.Event, field: str | None) -> int | None:
        if field is None:
            return None
        value = getattr(event, field)
        if field in codes:
            return codes[field][value]
        if field == "beneficiary_id":
            return tables.number_of(value)
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise DoesNotFit
        return int(value)

    def encode(tables: WriterTables, event: ev.Event) -> Columns:
        block, data = None, None
        if layout.blocks is not None:
            block, data = _pack_blocks(getattr(event, layout.blocks))
        elif layout.packed or layout.numbers:
            numbers: list[Any] = [figure(tables, event, field) for field in layout.packed]
            if layout.numbers:
                numbers.extend(getattr(event, layout.numbers))
            data = pack(numbers)
        a, b = figure(tables, event, layout.a), figure(tables, event, layout.b)
        request = tables.number_of(event.request_id) if layout.has_request else None  # type: ignore[union-attr]
        return (kind, request, block, a, b, data, None)

    return encode


def _layout_decoder(event_type: type[ev.Event], layout: Layout) -> Decoder:
    num_packed = len(layout.packed)

    def value(tables: ReaderTables, field: str, figure: int) -> object:
        codes = layout.codes_of(field)
        if codes is not None:
            return codes[figure]
        return tables.name_of(figure) if field == "beneficiary_id" else figure

    def decode(
        tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
    ) -> ev.Event:
        fields: dict[str, Any] = {}
        if layout.has_request:
            fields["request_id"] = tables.name_of(request)
        if layout.a is not None:
            fields[layout.a] = value(tables, layout.a, a)
        if layout.b is not None:
            fields[layout.b] = value(tables, layout.b, b)
        if layout.blocks is not None:
            fields[layout.blocks] = _unpack_blocks(block, data)
        elif data is not None:
            for field, character in zip(layout.packed, data, strict=False):
                fields[field] = value(tables, field, unpack_one(character))
            if layout.numbers:
                fields[layout.numbers] = unpack(data[num_packed:])
        return event_type(**fields)

    return decode


def _decode_block_allocated(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    return ev.BlockAllocated(request_id=tables.name_of(request), block_ids=_unpack_blocks(block, data))


_ENCODERS: dict[type[ev.Event], Encoder] = {
    **{event_type: _layout_encoder(event_type, layout) for event_type, layout in LAYOUTS.items()},
    ev.BlockCached: _encode_block_cached,
    ev.BlockEvicted: _encode_block_evicted,
    ev.BlockTouched: _encode_block_touched,
    ev.BlockReleased: _encode_block_released,
    ev.TokensScheduled: _encode_tokens_scheduled,
    ev.TokensSampled: _encode_tokens_sampled,
    ev.StepStarted: _encode_step_started,
    ev.StepFinished: _encode_step_finished,
    ev.RequestArrived: _encode_request_arrived,
    ev.RequestFinished: _encode_request_finished,
    ev.TokenTextRecorded: _encode_token_text,
    ev.RequestRejected: _encode_as_json,
    ev.StepFailed: _encode_as_json,
    ev.EngineConfigured: _encode_as_json,
}

_DECODERS: dict[int, Decoder] = {
    at.KIND_OF[event_type]: decoder
    for event_type, decoder in {
        **{event_type: _layout_decoder(event_type, layout) for event_type, layout in LAYOUTS.items()},
        ev.BlockAllocated: _decode_block_allocated,
        ev.BlockCached: _decode_block_cached,
        ev.BlockEvicted: _decode_block_evicted,
        ev.BlockTouched: _decode_block_touched,
        ev.BlockReleased: _decode_block_released,
        ev.TokensScheduled: _decode_tokens_scheduled,
        ev.TokensSampled: _decode_tokens_sampled,
        ev.StepStarted: _decode_step_started,
        ev.StepFinished: _decode_step_finished,
        ev.RequestArrived: _decode_request_arrived,
        ev.RequestFinished: _decode_request_finished,
        ev.TokenTextRecorded: _decode_token_text,
    }.items()
}
