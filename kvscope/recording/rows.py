"""Events to rows of the table `events`, and back.

The codec of most kinds follows from their `Layout`; kinds whose figures lie elsewhere (a step's clock in `steps`,
sampled tokens in `sampled_tokens`, an arrival in `requests`) or that hold several lists are written out. An event with
a value that does not fit its column (a token id of four bytes, say) is kept whole, as JSON.

Knows how a row looks, not how it is stored: what lies outside the row is reached through `WriterTables` and
`ReaderTables`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kvscope import events as ev
from kvscope.recording import layouts as at
from kvscope.recording.block_rows import (
    decode_block_allocated,
    decode_block_cached,
    decode_block_evicted,
    decode_block_released,
    decode_block_touched,
    encode_block_cached,
    encode_block_evicted,
    encode_block_released,
    encode_block_touched,
)
from kvscope.recording.block_runs import BlockRun, decode_block_steps
from kvscope.recording.layout_rows import layout_decoder, layout_encoder
from kvscope.recording.layouts import LAYOUTS
from kvscope.recording.packing import JSON_MARK
from kvscope.recording.request_rows import (
    decode_request_arrived,
    decode_request_finished,
    decode_token_text,
    encode_request_arrived,
    encode_request_finished,
    encode_token_text,
)
from kvscope.recording.row_types import Columns, Decoder, Encoder, EventRow, ReaderTables, WriterTables
from kvscope.recording.step_rows import (
    decode_step_finished,
    decode_step_started,
    decode_tokens_sampled,
    decode_tokens_scheduled,
    encode_step_finished,
    encode_step_started,
    encode_tokens_sampled,
    encode_tokens_scheduled,
)


def encode_events(tables: WriterTables, events: Sequence[ev.Event]) -> Iterator[EventRow]:
    """Yields the rows of a step. Neighbours that are about one block each share a row."""
    run = BlockRun(_encode)
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
        return decode_block_steps(tables, data, hashes)
    if data is not None and data[:1] == JSON_MARK:
        return (_decode_json(data),)
    return (_DECODERS[kind](tables, step, request, block, a, b, data, hashes),)


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


_ENCODERS: dict[type[ev.Event], Encoder] = {
    **{event_type: layout_encoder(event_type, layout) for event_type, layout in LAYOUTS.items()},
    ev.BlockCached: encode_block_cached,
    ev.BlockEvicted: encode_block_evicted,
    ev.BlockTouched: encode_block_touched,
    ev.BlockReleased: encode_block_released,
    ev.TokensScheduled: encode_tokens_scheduled,
    ev.TokensSampled: encode_tokens_sampled,
    ev.StepStarted: encode_step_started,
    ev.StepFinished: encode_step_finished,
    ev.RequestArrived: encode_request_arrived,
    ev.RequestFinished: encode_request_finished,
    ev.TokenTextRecorded: encode_token_text,
    ev.RequestRejected: _encode_as_json,
    ev.StepFailed: _encode_as_json,
    ev.EngineConfigured: _encode_as_json,
}

_DECODERS: dict[int, Decoder] = {
    at.KIND_OF[event_type]: decoder
    for event_type, decoder in {
        **{event_type: layout_decoder(event_type, layout) for event_type, layout in LAYOUTS.items()},
        ev.BlockAllocated: decode_block_allocated,
        ev.BlockCached: decode_block_cached,
        ev.BlockEvicted: decode_block_evicted,
        ev.BlockTouched: decode_block_touched,
        ev.BlockReleased: decode_block_released,
        ev.TokensScheduled: decode_tokens_scheduled,
        ev.TokensSampled: decode_tokens_sampled,
        ev.StepStarted: decode_step_started,
        ev.StepFinished: decode_step_finished,
        ev.RequestArrived: decode_request_arrived,
        ev.RequestFinished: decode_request_finished,
        ev.TokenTextRecorded: decode_token_text,
    }.items()
}
