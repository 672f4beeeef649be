"""Rows of a step as a whole: its tokens, and its clock, which lies in `steps`."""

from __future__ import annotations

from typing import Any

from kvscope import events as ev
from kvscope.recording import layouts as at
from kvscope.recording.packing import pack, pack_token_ids, unpack, unpack_token_ids
from kvscope.recording.row_types import Columns, DoesNotFit, ReaderTables, SampledRow, WriterTables


def encode_tokens_scheduled(tables: WriterTables, event: ev.TokensScheduled) -> Columns:
    """`a` is the list of requests. The first `b` of them have one token each; `data` has the counts of the others.

    If there are drafts, there follow in `data` for every request their number and the drafts.
    """
    counts, drafts = event.num_tokens, event.draft_token_ids
    if len(counts) != len(event.request_ids):
        raise DoesNotFit
    num_ones = counts.count(1)
    if num_ones < len(counts):
        num_ones = next(place for place, count in enumerate(counts) if count != 1)
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


def decode_tokens_scheduled(
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


def encode_tokens_sampled(tables: WriterTables, event: ev.TokensSampled) -> Columns:
    """All of it lies in `sampled_tokens`."""
    counts = None if event.num_tokens is None else pack(event.num_tokens)
    if len(event.request_ids) != len(event.token_ids if event.num_tokens is None else event.num_tokens):
        raise DoesNotFit
    if event.num_tokens is not None and sum(event.num_tokens) != len(event.token_ids):
        raise DoesNotFit
    token_ids = pack_token_ids(event.token_ids)
    tables.put_sampled(SampledRow(tables.list_of(event.request_ids), counts, token_ids))
    return (at.TOKENS_SAMPLED, None, None, None, None, None, None)


def decode_tokens_sampled(
    tables: ReaderTables, step: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    sampled = tables.sampled_in(step)
    return ev.TokensSampled(
        request_ids=tables.requests_of(sampled.request_list),
        token_ids=unpack_token_ids(sampled.token_ids),
        num_tokens=None if sampled.num_tokens is None else unpack(sampled.num_tokens),
    )


def encode_step_started(tables: WriterTables, event: ev.StepStarted) -> Columns:
    tables.put_step_started(event)
    return (at.STEP_STARTED, None, None, None, None, None, None)


def decode_step_started(
    tables: ReaderTables, step: int, request: Any, block: Any, a: Any, b: Any, data: Any, hashes: Any
) -> ev.Event:
    figures = tables.figures_of(step)
    return ev.StepStarted(step=step, token_budget=figures.token_budget or 0, time_ns=figures.time_ns or 0)


def encode_step_finished(tables: WriterTables, event: ev.StepFinished) -> Columns:
    tables.put_step_finished(event)
    return (at.STEP_FINISHED, None, None, None, None, None, None)


def decode_step_finished(
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
