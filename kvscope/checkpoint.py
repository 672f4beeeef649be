"""An `EngineState` as compact opaque bytes, so that a seek need not fold from the first step.

The pool is one sequence of block ids (all block tables by arrival, then what is held outside of tables, then the free
queue); beside it, place by place, run who computed the block and at which index of its table. A complete checkpoint
holds these. Others refer to a complete one, their base: runs copied from its sequence, and what was published or
evicted since; figures of requests are differences. What follows from the rest is left out: reference counts (how
many tables hold a block). Left out too: what belongs to one step alone, requests that have ended, block hashes.

Requests are stored as numbers; who reads them back gives the names. Decoding trusts nothing: types and ranges are
checked, sizes are bounded, and damage raises `RecordingError`.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, compress, repeat
from operator import add, itemgetter, sub
from typing import Any, get_args

import msgspec

from kvscope.errors import RecordingError
from kvscope.events import EngineConfigured
from kvscope.state import EngineState, RequestState, RequestStatus

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

_NO_OWNER = 0
"""Stands where a block is not published; requests are numbered from 1."""

NumberOf = Callable[[str], int]
NamesOf = Callable[[Collection[int]], Mapping[int, str]]


@dataclass(frozen=True, slots=True)
class _Known:
    """A request of the base: its figures in the order of `_figures_of`, and what never changes."""

    figures: list[int]
    arrival_time: float
    cache_salt: str | None
    lora_name: str | None = None


_UNKNOWN = _Known([0] * _NUM_FIGURES, 0.0, None)


@dataclass(frozen=True, slots=True)
class CheckpointBase:
    """A complete checkpoint, as others refer to it."""

    blocks: list[int]
    """All block tables by arrival, referenced blocks that stand in no table, then the free queue."""
    owners: list[int]
    """The number of the request that computed each of them, `_NO_OWNER` where it is not published."""
    indexes: list[int]
    """Its index in that request's table."""
    requests: dict[int, _Known]
    """By number."""
    place_of: dict[int, int] = field(default_factory=dict, compare=False)
    """Each block's (last) place in `blocks`; only an encoder fills it."""
    cached_from: dict[int, tuple[str, int]] = field(default_factory=dict, compare=False)
    """As in `EngineState`; only a decoder fills it, with the first checkpoint that refers to this one."""


class _NewRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the figures cannot hold, of a request that the base does not know."""

    arrival_time: float
    cache_salt: str | None
    lora_name: str | None = None


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
    blocks: bytes
    """Complete: the block ids. Else: where runs begin in the base's blocks. In the form of `_planes`, like the next."""
    run_lengths: list[int] | None
    """None in a complete one. Negative: backwards."""
    owners: bytes
    indexes: bytes
    """Complete: as in `CheckpointBase`, the indexes as differences. Else empty."""
    extra_references: list[tuple[int, int]]
    """Block and count, of blocks that are referenced beyond the tables that hold them."""
    num_orphans: int
    """How many of these stand in no table, between the tables and the free queue."""
    changed_places: list[int]
    """Where owner or index may differ from what the copied runs say; differences, like the next two."""
    changed_owners: list[int]
    changed_indexes: list[int]
    duplicate_groups: list[list[int]]


def encode_complete(state: EngineState, number_of: NumberOf) -> tuple[bytes, CheckpointBase]:
    """Returns the state after its last step, and what others need to refer to it."""
    requests = _live_requests(state)
    blocks, extra, num_orphans = _blocks_of(state, requests)
    owners, indexes = _publication(state, blocks, number_of)
    base = CheckpointBase(blocks, owners, indexes, _known_of(requests, number_of))
    pool = (_planes(blocks), None, _planes(owners), _planes(_differences(indexes)))
    nothing = CheckpointBase([], [], [], {})
    return _encode(state, nothing, base.requests, pool, extra, num_orphans, ([], [], [])), base


def encode_delta(
    state: EngineState, number_of: NumberOf, base: CheckpointBase, changed_blocks: Collection[int]
) -> bytes:
    """Returns the state after its last step, to be decoded with the base.

    `changed_blocks`: all that were published, evicted or un-published since the base; more of them do no harm.
    """
    requests = _live_requests(state)
    blocks, extra, num_orphans = _blocks_of(state, requests)
    starts, lengths = _runs(base, blocks)
    is_changed = set(changed_blocks).__contains__
    places = list(compress(range(len(blocks)), map(is_changed, blocks)))
    owners, indexes = _publication(state, [blocks[place] for place in places], number_of)
    known = _known_of(requests, number_of)
    pool = (_planes(starts), lengths, b"", b"")
    return _encode(state, base, known, pool, extra, num_orphans, (places, owners, indexes))


def _encode(
    state: EngineState,
    base: CheckpointBase,
    known: Mapping[int, _Known],
    pool: tuple[bytes, list[int] | None, bytes, bytes],
    extra_references: list[tuple[int, int]],
    num_orphans: int,
    changes: tuple[list[int], list[int], list[int]],
) -> bytes:
    requests = _live_requests(state)
    place = {request.request_id: index for index, request in enumerate(requests)}
    rows = [map(sub, of.figures, base.requests.get(number, _UNKNOWN).figures) for number, of in known.items()]
    packed = _Checkpoint(
        step=state.step,
        token_budget=state.token_budget,
        requests=_differences(list(known)),
        new_requests=[
            _NewRequest(of.arrival_time, of.cache_salt, of.lora_name)
            for number, of in known.items()
            if number not in base.requests
        ],
        columns=[list(column) for column in zip(*rows, strict=True)],
        drafts={place[r.request_id]: list(r.draft_token_ids) for r in requests if r.draft_token_ids},
        waiting=[place[request_id] for request_id in state.waiting],
        running=[place[request_id] for request_id in state.running],
        blocks=pool[0],
        run_lengths=pool[1],
        owners=pool[2],
        indexes=pool[3],
        extra_references=extra_references,
        num_orphans=num_orphans,
        changed_places=_differences(changes[0]),
        changed_owners=_differences(changes[1]),
        changed_indexes=_differences(changes[2]),
        duplicate_groups=[list(g) for g in {id(g): g for g in state.duplicate_groups.values()}.values()],
    )
    return zlib.compress(msgspec.msgpack.encode(packed), 6)


def decode_checkpoint(
    data: bytes, config: EngineConfigured, names_of: NamesOf, base: CheckpointBase | None = None
) -> EngineState:
    """Returns a new state. Raises `RecordingError` on damage."""
    with _damage_reported():
        packed = _unpack(data)
        if packed.run_lengths is None:
            pool = _complete(packed)
            blocks, known, cached_from = pool.blocks, pool.requests, _cached_from(pool, names_of)
        elif base is None:
            raise ValueError("it refers to another checkpoint")
        else:
            blocks = _copy_runs(base.blocks, _from_planes(packed.blocks), packed.run_lengths)
            known = _known_requests(packed, base)
            cached_from = _changed(packed, blocks, base, names_of)
        requests = _requests(packed, blocks, known, names_of(known.keys()))
        num_in_tables = sum(len(request.block_ids) for request in requests)
        ref_cnts = [0] * config.num_gpu_blocks
        for block_id in blocks[:num_in_tables]:
            ref_cnts[block_id] += 1
        for block_id, count in packed.extra_references:
            ref_cnts[block_id] += count
        free_blocks = blocks[num_in_tables + packed.num_orphans :]
        groups = [dict.fromkeys(group) for group in packed.duplicate_groups]
        return EngineState(
            config=config,
            step=packed.step,
            token_budget=packed.token_budget,
            requests={request.request_id: request for request in requests},
            waiting=[requests[place].request_id for place in packed.waiting],
            running=[requests[place].request_id for place in packed.running],
            free_queue=OrderedDict.fromkeys(free_blocks),
            ref_cnts=ref_cnts,
            cached_from=cached_from,
            duplicate_groups={block_id: group for group in groups for block_id in group},
            num_shared_blocks=len(ref_cnts) - ref_cnts.count(0) - ref_cnts.count(1),
            num_cached_free_blocks=sum(map(cached_from.__contains__, free_blocks)),
        )


def decode_base(data: bytes) -> CheckpointBase:
    """Returns of a complete checkpoint what others need to refer to it. Raises `RecordingError` on damage."""
    with _damage_reported():
        packed = _unpack(data)
        if packed.run_lengths is not None:
            raise ValueError("it refers to another checkpoint")
        return _complete(packed)


def check_checkpoint(data: bytes) -> None:
    """Raises `RecordingError` where the bytes cannot be unpacked: they carry a checksum."""
    with _damage_reported():
        _unpack(data)


@contextmanager
def _damage_reported() -> Iterator[None]:
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, msgspec.MsgspecError, MemoryError, struct.error) as error:
        raise RecordingError(f"a checkpoint of the recording is damaged ({error})") from error


def _unpack(data: bytes) -> _Checkpoint:
    unzip = zlib.decompressobj()
    raw = unzip.decompress(data, _MAX_BYTES)
    if unzip.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {_MAX_BYTES:,} bytes")
    return msgspec.msgpack.decode(raw, type=_Checkpoint)


def _complete(packed: _Checkpoint) -> CheckpointBase:
    """Returns pool and requests of a checkpoint that refers to no other."""
    blocks, owners = list(_from_planes(packed.blocks)), list(_from_planes(packed.owners))
    indexes = _sums(_from_planes(packed.indexes))
    if not len(blocks) == len(owners) == len(indexes):
        raise ValueError(f"{len(blocks)} blocks have {len(owners)} owners and {len(indexes)} indexes")
    return CheckpointBase(blocks, owners, indexes, _known_requests(packed, CheckpointBase([], [], [], {})))


def _cached_from(pool: CheckpointBase, names_of: NamesOf) -> dict[int, tuple[str, int]]:
    """Returns of each published block who computed it, by name, and its index in that request's table."""
    names = names_of({*pool.owners} - {_NO_OWNER})
    published = compress(pool.blocks, pool.owners)
    owners: Any = compress(zip(map(names.get, pool.owners), pool.indexes, strict=True), pool.owners)
    return dict(zip(published, owners, strict=True))


def _changed(
    packed: _Checkpoint, blocks: list[int], base: CheckpointBase, names_of: NamesOf
) -> dict[int, tuple[str, int]]:
    """Returns the same of a checkpoint that refers to a base: what the base has, but for what changed since."""
    if not base.cached_from:
        base.cached_from.update(_cached_from(base, names_of))
    cached_from = base.cached_from.copy()
    places, owners = _sums(packed.changed_places), _sums(packed.changed_owners)
    names = names_of({*owners} - {_NO_OWNER})
    for place, owner, index in zip(places, owners, _sums(packed.changed_indexes), strict=True):
        if owner == _NO_OWNER:
            cached_from.pop(blocks[place], None)
        else:
            cached_from[blocks[place]] = (names[owner], index)
    return cached_from


# --- requests ---------------------------------------------------------------------------------------------------------


def _live_requests(state: EngineState) -> list[RequestState]:
    """Returns the requests that have not ended, by arrival."""
    ended = set(state.ended_ids)
    return [request for request_id, request in state.requests.items() if request_id not in ended]


def _known_of(requests: Sequence[RequestState], number_of: NumberOf) -> dict[int, _Known]:
    return {
        number_of(r.request_id): _Known(_figures_of(r), r.arrival_time, r.cache_salt, r.lora_name) for r in requests
    }


def _figures_of(request: RequestState) -> list[int]:
    steps = [getattr(request, name) for name in _STEPS]
    return [
        _STATUSES.index(request.status),
        len(request.block_ids),
        *[getattr(request, name) for name in _FIGURES],
        *[0 if step is None else step + 1 for step in steps],
    ]


def _known_requests(packed: _Checkpoint, base: CheckpointBase) -> dict[int, _Known]:
    """Returns figures and constants of each request, by arrival."""
    numbers, new_requests = _sums(packed.requests), iter(packed.new_requests)
    if numbers and len(packed.columns) != _NUM_FIGURES:
        raise ValueError(f"{len(packed.columns)} figures a request")
    known: dict[int, _Known] = {}
    for number, row in zip(numbers, zip(*packed.columns, strict=True), strict=True):
        old = base.requests.get(number)
        if old is None:
            new = next(new_requests, None)
            if new is None:
                raise ValueError(f"nothing is known of request {number}")
            known[number] = _Known(list(row), new.arrival_time, new.cache_salt, new.lora_name)
        else:
            known[number] = replace(old, figures=list(map(add, old.figures, row)))
    return known


def _requests(
    packed: _Checkpoint, blocks: list[int], known: Mapping[int, _Known], names: Mapping[int, str]
) -> list[RequestState]:
    requests: list[RequestState] = []
    begin = 0
    for place, (number, of) in enumerate(known.items()):
        status, num_blocks, *figures = of.figures
        by_name: dict[str, Any] = dict(zip(_FIGURES, figures, strict=False))
        request = RequestState(
            request_id=names[number],
            status=_STATUSES[status],
            block_ids=blocks[begin : begin + num_blocks],
            draft_token_ids=tuple(packed.drafts.get(place, ())),
            arrival_time=of.arrival_time,
            cache_salt=of.cache_salt,
            lora_name=of.lora_name,
            **by_name,
        )
        steps = [step - 1 if step else None for step in figures[len(_FIGURES) :]]
        request.first_admitted_step, request.admitted_step, request.first_token_step = steps
        requests.append(request)
        begin += num_blocks
    return requests


# --- blocks -----------------------------------------------------------------------------------------------------------


def _blocks_of(state: EngineState, requests: Sequence[RequestState]) -> tuple[list[int], list[tuple[int, int]], int]:
    """Returns the pool as one sequence, the references beyond those of tables, and how many blocks stand in none."""
    in_tables = list(chain.from_iterable(request.block_ids for request in requests))
    if len(in_tables) == sum(state.ref_cnts):
        return in_tables + list(state.free_queue), [], 0
    counts = [0] * len(state.ref_cnts)
    for block_id in in_tables:
        counts[block_id] += 1
    pairs = enumerate(zip(state.ref_cnts, counts, strict=True))
    extra = [(block_id, ref_cnt - count) for block_id, (ref_cnt, count) in pairs if ref_cnt != count]
    orphans = [block_id for block_id, _ in extra if not counts[block_id]]
    return in_tables + orphans + list(state.free_queue), extra, len(orphans)


def _publication(state: EngineState, blocks: Iterable[int], number_of: NumberOf) -> tuple[list[int], list[int]]:
    """Returns the owner's number and the index of each block."""
    nobody: tuple[str | None, int] = (None, 0)
    pairs = list(map(state.cached_from.get, blocks, repeat(nobody)))
    names = list(map(itemgetter(0), pairs))
    numbers = {name: _NO_OWNER if name is None else number_of(name) for name in dict.fromkeys(names)}
    return list(map(numbers.__getitem__, names)), list(map(itemgetter(1), pairs))


def _runs(base: CheckpointBase, blocks: list[int]) -> tuple[list[int], list[int]]:
    """Returns where in the base to copy `blocks` from: starts and lengths, negative where a run goes backwards.

    Lists of a pool's length are gone through by the interpreter's own loops only: the engine waits meanwhile.
    """
    if not base.place_of:
        base.place_of.update(zip(base.blocks, range(len(base.blocks)), strict=True))
    places = list(map(base.place_of.__getitem__, blocks))
    directions = bytes([1 if step == 1 else 2 if step == -1 else 0 for step in map(sub, places[1:], places)])
    starts: list[int] = []
    lengths: list[int] = []
    done = 0
    for run in _RUN.finditer(directions):
        begin, end = max(run.start(), done), run.end() + 1
        if end - begin > 1:  # the first block of a run may have been the last of the run before
            starts += places[done:begin]
            lengths += [1] * (begin - done)
            starts.append(places[begin])
            lengths.append(end - begin if directions[begin] == 1 else begin - end)
            done = end
    return starts + places[done:], lengths + [1] * (len(places) - done)


_RUN = re.compile(rb"\x01+|\x02+")
"""Steps forwards, or backwards, one after another."""


def _copy_runs(base: list[int], starts: Sequence[int], lengths: Sequence[int]) -> list[int]:
    if len(starts) != len(lengths):
        raise ValueError(f"{len(starts)} runs have {len(lengths)} lengths")
    copied: list[int] = []
    done = 0
    for run in [index for index, length in enumerate(lengths) if length != 1]:  # single places are copied in one go
        copied += map(base.__getitem__, starts[done:run])
        start, length = starts[run], lengths[run]
        if not (0 <= start < len(base) and -1 <= start + length <= len(base)):
            raise ValueError(f"{length} blocks from place {start} of {len(base)}")
        copied += base[start : start + length] if length > 0 else base[start + length + 1 : start + 1][::-1]
        done = run + 1
    copied += map(base.__getitem__, starts[done:])
    return copied


# --- numbers ----------------------------------------------------------------------------------------------------------


def _differences(values: Sequence[int]) -> list[int]:
    return list(map(sub, values, chain((0,), values)))


def _sums(differences: Sequence[int]) -> list[int]:
    return list(accumulate(differences))


def _planes(values: list[int]) -> bytes:
    """Returns the values in four bytes each, the lowest bytes of all first: alike bytes together pack well."""
    raw = struct.pack(f"<{len(values)}i", *values)
    return b"".join(raw[plane::4] for plane in range(4))


def _from_planes(data: bytes) -> tuple[int, ...]:
    size = len(data) // 4
    raw = bytearray(size * 4)
    for plane in range(4):
        raw[plane::4] = data[plane * size : plane * size + size]
    return struct.unpack(f"<{size}i", raw)
