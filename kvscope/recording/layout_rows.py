"""Rows of the kinds whose codec follows from their `Layout`."""

from __future__ import annotations

from typing import Any

from kvscope import events as ev
from kvscope.recording import layouts as at
from kvscope.recording.block_rows import pack_blocks, unpack_blocks
from kvscope.recording.layouts import Layout
from kvscope.recording.packing import pack, unpack, unpack_one
from kvscope.recording.row_types import (
    MAX_INTEGER,
    Columns,
    Decoder,
    DoesNotFit,
    Encoder,
    ReaderTables,
    WriterTables,
)


def layout_encoder(event_type: type[ev.Event], layout: Layout) -> Encoder:
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
            block, data = pack_blocks(getattr(event, layout.blocks))
        elif layout.packed or layout.numbers:
            numbers: list[Any] = [figure(tables, event, field) for field in layout.packed]
            if layout.numbers:
                numbers.extend(getattr(event, layout.numbers))
            data = pack(numbers)
        a, b = figure(tables, event, layout.a), figure(tables, event, layout.b)
        request = tables.number_of(event.request_id) if layout.has_request else None  # type: ignore[union-attr]
        return (kind, request, block, a, b, data, None)

    return encode


def layout_decoder(event_type: type[ev.Event], layout: Layout) -> Decoder:
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
            fields[layout.blocks] = unpack_blocks(block, data)
        elif data is not None:
            for field, character in zip(layout.packed, data, strict=False):
                fields[field] = value(tables, field, unpack_one(character))
            if layout.numbers:
                fields[layout.numbers] = unpack(data[num_packed:])
        return event_type(**fields)

    return decode
