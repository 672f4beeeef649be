"""Rows of requests' arrivals and ends, and of the texts of tokens: most of it lies in tables of its own."""

from __future__ import annotations

from typing import Any

from kvscope import events as ev
from kvscope.recording import layouts as at
from kvscope.recording.packing import JSON_MARK, pack, unpack
from kvscope.recording.row_types import MAX_INTEGER, Columns, DoesNotFit, ReaderTables, WriterTables


def encode_request_arrived(tables: WriterTables, event: ev.RequestArrived) -> Columns:
    """`a` is the place in the queue; the rest lies in `requests` and `prompt_tokens`."""
    position = event.queue_position
    if not 0 <= position <= MAX_INTEGER:
        raise DoesNotFit
    return (at.KIND_OF[ev.RequestArrived], tables.put_arrival(event), None, position, None, None, None)


def decode_request_arrived(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    return tables.arrival_of(request, a)


def encode_request_finished(tables: WriterTables, event: ev.RequestFinished) -> Columns:
    """`a` is the number of output tokens, `b` the reason, `data` what stopped it."""
    if event.stop is not None and event.stop[:1] == JSON_MARK:
        raise DoesNotFit
    if event.stop is not None:
        event.stop.encode()  # a lone surrogate raises here
    reason = at.FINISH_REASONS.index(event.reason)
    request = tables.number_of(event.request_id)
    return (at.KIND_OF[ev.RequestFinished], request, None, event.num_output_tokens, reason, event.stop, None)


def decode_request_finished(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    reason: Any = at.FINISH_REASONS[b]
    return ev.RequestFinished(request_id=tables.name_of(request), reason=reason, num_output_tokens=a, stop=data)


def encode_token_text(tables: WriterTables, event: ev.TokenTextRecorded) -> Columns:
    """`data` has the token ids; their bytes lie in `tokens`."""
    data = pack(event.token_ids)
    if len(event.token_ids) != len(event.token_bytes):
        raise DoesNotFit
    tables.put_token_bytes(event.token_ids, event.token_bytes)
    return (at.KIND_OF[ev.TokenTextRecorded], None, None, None, None, data, None)


def decode_token_text(
    tables: ReaderTables, _: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    token_ids = unpack(data)
    return ev.TokenTextRecorded(token_ids=token_ids, token_bytes=tables.bytes_of(token_ids))
