"""An `EngineState` as compact opaque bytes, so that a seek need not fold from the first step.

A checkpoint is written against a base: an earlier checkpoint, or the pool as it was at the start. The pool is one
sequence of block ids (all block tables by arrival, then what stands in none, then the free queue), stored as runs copied from the base's sequence;
figures of requests are differences to the base's. What follows from the rest is left out: reference counts (how many
tables hold a block), whose a published block is (mostly: the table it stands in). Left out too: what belongs to the step
alone, requests that have ended, block hashes.

Requests are stored as numbers; who reads them back gives the names. Decoding trusts nothing: types and ranges are
checked, sizes are bounded, and damage raises `RecordingError`.
"""

from __future__ import annotations

import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import add, sub
from typing import Any, get_args

import msgspec

from kvscope.errors import RecordingError
from kvscope.events import EngineConfigured
from kvscope.state import NULL_BLOCK, EngineState, RequestState, RequestStatus

_MAX_BYTES = 1 << 28
"""Bound of what a checkpoint may unpack to: 256 MiB is far more than any pool needs."""

_STATUSES: tuple[RequestStatus, ...] = get_args(RequestStatus)

_FIGURES = (
    "arrival_step",
    "num_prompt_tokens",
    "max_tokens",
    "priority",
    "num_tokens",
    "num_computed_tokens",
    "num_cached_blocks",
    "num_prefill_tokens",
    "num_hit_tokens",
    "num_own_hit_tokens",
    "num_preemptions",
    "num_lost_tokens",
    "waiting_since_step",
)
_STEPS = ("first_admitted_step", "admitted_step", "first_token_step")
"""Figures that may be None: stored as one more, 0 for None."""

_NUM_FIGURES = 2 + len(_FIGURES) + len(_STEPS)
"""Status and length of the block table come before them."""

_ARRIVAL_STEP = 2
"""Its place in the figures: a request of a known name that arrived in another step is another request."""

Owner = tuple[str, int]
NamesOf = Callable[[Collection[int]], Mapping[int, str]]


@dataclass(frozen=True, slots=True)
class CheckpointBase:
    """What a later checkpoint refers to."""

    blocks: list[int]
    """All block tables by arrival, referenced blocks that stand in no table, then the free queue."""
    cached_from: dict[int, Owner]
    requests: dict[str, _Known]


@dataclass(frozen=True, slots=True)
class _Known:
    """A request of the base: its figures in the order of `_figures_of`, and what never changes."""

    figures: list[int]
    arrival_time: float
    cache_salt: str | None


class _NewRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the figures cannot hold, of a request that the base does not know."""

    arrival_time: float
    cache_salt: str | None


class _Checkpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    step: int
    token_budget: int
    requests: list[int]
    """Numbers, by arrival, each as the difference to the one before."""
    new_requests: list[_NewRequest]
    columns: list[list[int]]
    """Figures by column, as differences to the base's request, else to 0."""
    drafts: dict[int, list[int]]
    """By place in `requests`."""
    waiting: list[int]
    """Places in `requests`."""
    running: list[int]
    run_starts: bytes
    """Places in the base's blocks, four bytes each, least significant bytes of all first."""
    run_lengths: list[int]
    """Negative: backwards."""
    extra_references: list[tuple[int, int]]
    """Block and count, of blocks that are referenced beyond the tables that hold them."""
    num_orphans: int
    """How many of these stand in no table, between the tables and the free queue."""
    uncached: list[int]
    """Blocks that look published by the rules of `_expected_owners` and are not."""
    owners: list[tuple[int, list[int], list[int]]]
    """Published otherwise: request number, indexes, and places in the blocks; both as differences."""
    duplicate_groups: list[list[int]]


def encode_checkpoint(
    state: EngineState, number_of: Callable[[str], int], base: CheckpointBase | None = None
) -> tuple[bytes, CheckpointBase]:
    """Returns the state after its last step as bytes, and what a later checkpoint needs to refer to it."""
    base = _start(len(state.ref_cnts)) if base is None else base
    ended = set(state.ended_ids)
    requests = [request for request_id, request in state.requests.items() if request_id not in ended]
    in_tables = list(chain.from_iterable(request.block_ids for request in requests))
    extra, orphans = _extra_references(state.ref_cnts, in_tables)
    blocks = in_tables + orphans + list(state.free_queue)
    known = {r.request_id: _Known(_figures_of(r), r.arrival_time, r.cache_salt) for r in requests}
    place = {request_id: index for index, request_id in enumerate(known)}
    starts, lengths = _runs(base.blocks, blocks)
    uncached, owners = _unexpected_owners(state.cached_from, _expected_owners(base, requests), blocks, number_of)
    packed = _Checkpoint(
        step=state.step,
        token_budget=state.token_budget,
        requests=_differences([number_of(request_id) for request_id in known]),
        new_requests=[
            _NewRequest(request.arrival_time, request.cache_salt)
            for request_id, request in known.items()
            if not _is_same(base.requests.get(request_id), request.figures)
        ],
        columns=_columns(known, base),
        drafts={place[r.request_id]: list(r.draft_token_ids) for r in requests if r.draft_token_ids},
        waiting=[place[request_id] for request_id in state.waiting],
        running=[place[request_id] for request_id in state.running],
        run_starts=_planes(starts),
        run_lengths=lengths,
        extra_references=extra,
        num_orphans=len(orphans),
        uncached=uncached,
        owners=owners,
        duplicate_groups=[list(g) for g in {id(g): g for g in state.duplicate_groups.values()}.values()],
    )
    return zlib.compress(msgspec.msgpack.encode(packed), 6), CheckpointBase(blocks, dict(state.cached_from), known)


def decode_checkpoint(
    data: bytes, config: EngineConfigured, names_of: NamesOf, base: CheckpointBase | None = None
) -> tuple[EngineState, CheckpointBase]:
    """Returns the state and what checkpoints that refer to this one need. Raises `RecordingError` on damage."""
    try:
        unzip = zlib.decompressobj()
        raw = unzip.decompress(data, _MAX_BYTES)
        if unzip.unconsumed_tail:
            raise ValueError(f"it unpacks to more than {_MAX_BYTES:,} bytes")
        packed = msgspec.msgpack.decode(raw, type=_Checkpoint)
        return _restore(packed, config, names_of, _start(config.num_gpu_blocks) if base is None else base)
    except (zlib.error, ValueError, LookupError, TypeError, msgspec.MsgspecError, MemoryError) as error:
        raise RecordingError(
            f"a checkpoint of the recording is damaged ({error}); delete the rows of its table `checkpoints`: "
            "they only make it quicker"
        ) from error


def _restore(
    packed: _Checkpoint, config: EngineConfigured, names_of: NamesOf, base: CheckpointBase
) -> tuple[EngineState, CheckpointBase]:
    blocks = _copy_runs(base.blocks, _from_planes(packed.run_starts), packed.run_lengths)
    numbers = _sums(packed.requests)
    names = names_of({*numbers, *(number for number, _, _ in packed.owners)})
    known = _known_requests(packed, [names[number] for number in numbers], base)
    requests = _requests(packed, known, blocks)
    num_in_tables = sum(len(request.block_ids) for request in requests)
    ref_cnts = [0] * config.num_gpu_blocks
    for block_id in blocks[:num_in_tables]:
        ref_cnts[block_id] += 1
    for block_id, count in packed.extra_references:
        ref_cnts[block_id] += count
    free_queue = OrderedDict.fromkeys(blocks[num_in_tables + packed.num_orphans :])
    cached_from = _expected_owners(base, requests)
    for block_id in packed.uncached:
        del cached_from[block_id]
    for number, indexes, places in packed.owners:
        owned = [blocks[place] for place in _sums(places)]
        cached_from.update(zip(owned, zip(repeat(names[number]), _sums(indexes)), strict=True))
    groups = [dict.fromkeys(group) for group in packed.duplicate_groups]
    state = EngineState(
        config=config,
        step=packed.step,
        token_budget=packed.token_budget,
        requests={request.request_id: request for request in requests},
        waiting=[requests[place].request_id for place in packed.waiting],
        running=[requests[place].request_id for place in packed.running],
        free_queue=free_queue,
        ref_cnts=ref_cnts,
        cached_from=cached_from,
        duplicate_groups={block_id: group for group in groups for block_id in group},
        num_shared_blocks=sum(map((1).__lt__, ref_cnts)),
        num_cached_free_blocks=len(free_queue.keys() & cached_from.keys()),
    )
    return state, CheckpointBase(blocks, dict(cached_from), known)


def _start(num_gpu_blocks: int) -> CheckpointBase:
    """Returns the base of a checkpoint that has none: the pool as it was at the start."""
    return CheckpointBase(list(range(NULL_BLOCK + 1, num_gpu_blocks)), {}, {})


# --- requests ---------------------------------------------------------------------------------------------------------


def _figures_of(request: RequestState) -> list[int]:
    steps = [getattr(request, name) for name in _STEPS]
    return [
        _STATUSES.index(request.status),
        len(request.block_ids),
        *[getattr(request, name) for name in _FIGURES],
        *[0 if step is None else step + 1 for step in steps],
    ]


def _is_same(known: _Known | None, figures: list[int]) -> bool:
    return known is not None and known.figures[_ARRIVAL_STEP] == figures[_ARRIVAL_STEP]


def _columns(requests: Mapping[str, _Known], base: CheckpointBase) -> list[list[int]]:
    """Returns the figures by column, as differences to those of the base."""
    zero = _Known([0] * _NUM_FIGURES, 0.0, None)
    rows = [
        list(map(sub, request.figures, base.requests.get(request_id, zero).figures))
        for request_id, request in requests.items()
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _known_requests(packed: _Checkpoint, names: list[str], base: CheckpointBase) -> dict[str, _Known]:
    """Returns figures and constants of each request, by arrival."""
    if names and len(packed.columns) != _NUM_FIGURES:
        raise ValueError(f"{len(packed.columns)} figures a request")
    zero, new_requests = [0] * _NUM_FIGURES, iter(packed.new_requests)
    known: dict[str, _Known] = {}
    for name, row in zip(names, zip(*packed.columns, strict=True), strict=True):
        old = base.requests.get(name)
        figures = list(map(add, zero if old is None else old.figures, row))
        if old is not None and _is_same(old, figures):
            known[name] = _Known(figures, old.arrival_time, old.cache_salt)
        else:
            new = next(new_requests, None)
            if new is None:
                raise ValueError(f"nothing is known of {name}")
            known[name] = _Known(figures, new.arrival_time, new.cache_salt)
    return known


def _requests(packed: _Checkpoint, known: Mapping[str, _Known], blocks: list[int]) -> list[RequestState]:
    requests: list[RequestState] = []
    begin = 0
    for place, (name, of) in enumerate(known.items()):
        status, num_blocks, *figures = of.figures
        by_name: dict[str, Any] = dict(zip(_FIGURES, figures, strict=False))
        steps = [step - 1 if step else None for step in figures[len(_FIGURES) :]]
        request = RequestState(
            request_id=name,
            status=_STATUSES[status],
            block_ids=blocks[begin : begin + num_blocks],
            draft_token_ids=tuple(packed.drafts.get(place, ())),
            arrival_time=of.arrival_time,
            cache_salt=of.cache_salt,
            **by_name,
        )
        request.first_admitted_step, request.admitted_step, request.first_token_step = steps
        requests.append(request)
        begin += num_blocks
    return requests


# --- blocks -----------------------------------------------------------------------------------------------------------


def _extra_references(ref_cnts: list[int], in_tables: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """Returns the references beyond those of the tables, and the referenced blocks that stand in no table."""
    counts = [0] * len(ref_cnts)
    for block_id in in_tables:
        counts[block_id] += 1
    if counts == ref_cnts:
        return [], []
    pairs = enumerate(zip(ref_cnts, counts, strict=True))
    extra = [(block_id, ref_cnt - count) for block_id, (ref_cnt, count) in pairs if ref_cnt != count]
    return extra, [block_id for block_id, _ in extra if not counts[block_id]]


def _runs(base: Sequence[int], blocks: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns where in the base to copy `blocks` from: starts and lengths, negative where a run goes backwards."""
    place_of = dict(zip(base, range(len(base)), strict=True))
    starts: list[int] = []
    lengths: list[int] = []
    last, direction, length = -2, 0, 0
    for place in map(place_of.__getitem__, blocks):
        step = place - last
        if (length > 1 and step == direction) or (length == 1 and step in (1, -1)):
            direction = step
            length += 1
        else:
            if length:
                lengths.append(length * (direction or 1))
            starts.append(place)
            direction, length = 0, 1
        last = place
    if length:
        lengths.append(length * (direction or 1))
    return starts, lengths


def _copy_runs(base: list[int], starts: Sequence[int], lengths: Sequence[int]) -> list[int]:
    blocks: list[int] = []
    for start, length in zip(starts, lengths, strict=True):
        if length == 1:
            blocks.append(base[start])
            continue
        if not (0 <= start < len(base) and -1 <= start + length <= len(base)):
            raise ValueError(f"{length} blocks from place {start} of {len(base)}")
        blocks += base[start : start + length] if length > 0 else base[start + length + 1 : start + 1][::-1]
    return blocks


def _expected_owners(base: CheckpointBase, requests: list[RequestState]) -> dict[int, Owner]:
    """Returns whose each published block would be, if nothing but the tables were known of the time since the base."""
    expected = dict(base.cached_from)
    for request in reversed(requests):  # where two tables share a block, it is the earlier request's
        cached = request.block_ids[: request.num_cached_blocks]
        expected.update(zip(cached, zip(repeat(request.request_id), range(len(cached))), strict=True))
    return expected


def _unexpected_owners(
    cached_from: Mapping[int, Owner],
    expected: Mapping[int, Owner],
    blocks: Sequence[int],
    number_of: Callable[[str], int],
) -> tuple[list[int], list[tuple[int, list[int], list[int]]]]:
    """Returns the blocks that are not published after all, and the others' owners, indexes and places in `blocks`."""
    get = expected.get
    by_owner: dict[str, list[tuple[int, int]]] = {}
    unexpected = [(block_id, owner) for block_id, owner in cached_from.items() if get(block_id) != owner]
    if unexpected:
        place_of = dict(zip(blocks, range(len(blocks)), strict=True))
        for block_id, (request_id, index) in unexpected:
            by_owner.setdefault(request_id, []).append((index, place_of[block_id]))
    owners = []
    for request_id, pairs in by_owner.items():
        pairs.sort()
        indexes, places = zip(*pairs, strict=True)
        owners.append((number_of(request_id), _differences(indexes), _differences(places)))
    return sorted(expected.keys() - cached_from.keys()), owners


# --- numbers ----------------------------------------------------------------------------------------------------------


def _differences(values: Sequence[int]) -> list[int]:
    return list(map(sub, values, chain((0,), values)))


def _sums(differences: Sequence[int]) -> list[int]:
    return list(accumulate(differences))


def _planes(values: list[int]) -> bytes:
    """Returns the values in four bytes each, the lowest bytes of all first: alike bytes together pack well."""
    raw = struct.pack(f"<{len(values)}I", *values)
    return b"".join(raw[plane::4] for plane in range(4))


def _from_planes(data: bytes) -> tuple[int, ...]:
    size = len(data) // 4
    raw = bytearray(size * 4)
    for plane in range(4):
        raw[plane::4] = data[plane * size : plane * size + size]
    return struct.unpack(f"<{size}I", raw)
