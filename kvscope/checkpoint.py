"""An `EngineState` as compact opaque bytes, so that a seek need not fold from the first step.

A checkpoint is written against a base: an earlier checkpoint, or the pool as it was at the start. The pool is one
sequence of block ids (all block tables by arrival, then what is held outside of tables, then the free queue), stored as
runs copied from the base's sequence; figures of requests are differences to the base's. What follows from the rest is
left out: reference counts (how many tables hold a block), whose a published block is (mostly: the table's it stands in,
or as in the base). Left out too: what belongs to one step alone, requests that have ended, block hashes.

Requests are stored as numbers; who reads them back gives the names. Decoding trusts nothing: types and ranges are
checked, sizes are bounded, and damage raises `RecordingError`.
"""

from __future__ import annotations

import gc
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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

_NUM_BLOCKS = 1
_ARRIVAL_STEP = 2
"""Places in the figures. A request of a known name that arrived in another step is another request."""
_NUM_CACHED_BLOCKS = 2 + _FIGURES.index("num_cached_blocks")

Owner = tuple[str, int]
NamesOf = Callable[[Collection[int]], Mapping[int, str]]


@dataclass(frozen=True, slots=True)
class CheckpointBase:
    """What a later checkpoint refers to."""

    blocks: list[int]
    """All block tables by arrival, referenced blocks that stand in no table, then the free queue."""
    cached_from: dict[int, Owner]
    requests: dict[str, _Known]
    place_of: dict[int, int] = field(default_factory=dict)
    """Each block's (last) place in `blocks`; only an encoder fills it."""


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
    unpublished_starts: bytes
    unpublished_lengths: list[int]
    """Runs of the base's blocks: published then, evicted since (and published again, perhaps)."""
    not_published: list[int]
    """Blocks among the published ones of a table that are not."""
    owners: list[int]
    """Published, neither as in the base nor by the table: the numbers of the requests whose they are."""
    num_owned: list[int]
    owned_indexes: list[int]
    owned_places: list[int]
    """For each owner in turn so many indexes in its table, and places in the blocks; both as differences."""
    duplicate_groups: list[list[int]]


def encode_checkpoint(
    state: EngineState,
    number_of: Callable[[str], int],
    base: CheckpointBase | None = None,
    changed_blocks: Collection[int] | None = None,
) -> bytes:
    """Returns the state after its last step as bytes. A later checkpoint may refer to it by `base_of(state)`.

    `changed_blocks`: all that were published, evicted or un-published since the base; more of them do no harm, None
    stands for all.
    """
    if base is None:
        base, changed_blocks = _start(len(state.ref_cnts)), state.cached_from
    elif changed_blocks is None:
        changed_blocks = state.cached_from.keys() | base.cached_from.keys()
    if not base.place_of:
        base.place_of.update(zip(base.blocks, range(len(base.blocks)), strict=True))
    requests = _live_requests(state)
    blocks, extra, num_orphans = _blocks_of(state, requests)
    known = _known_of(requests)
    place = {request_id: index for index, request_id in enumerate(known)}
    starts, lengths = _runs(base, blocks)
    unpublished = sorted(base.place_of[block_id] for block_id in changed_blocks if block_id in base.cached_from)
    unpublished_starts, unpublished_lengths = _runs(base, [base.blocks[place] for place in unpublished])
    owners, num_owned, owned_indexes, owned_places = _owners(state, changed_blocks, blocks, number_of)
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
        num_orphans=num_orphans,
        unpublished_starts=_planes(unpublished_starts),
        unpublished_lengths=unpublished_lengths,
        not_published=_not_published(state, requests),
        owners=owners,
        num_owned=num_owned,
        owned_indexes=_differences(owned_indexes),
        owned_places=_differences(owned_places),
        duplicate_groups=[list(g) for g in {id(g): g for g in state.duplicate_groups.values()}.values()],
    )
    return zlib.compress(msgspec.msgpack.encode(packed), 6)


def base_of(state: EngineState) -> CheckpointBase:
    """Returns what a later checkpoint needs to refer to one of this state."""
    requests = _live_requests(state)
    return CheckpointBase(_blocks_of(state, requests)[0], dict(state.cached_from), _known_of(requests))


def decode_checkpoint(
    data: bytes, config: EngineConfigured, names_of: NamesOf, base: CheckpointBase | None = None
) -> EngineState:
    """Returns a new state. Raises `RecordingError` on damage."""
    with _damage_reported(), _collector_paused():
        packed, base = _unpack(data, config, base)
        blocks, known, cached_from = _restore(packed, names_of, base)
        requests = _requests(packed, known, blocks)
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
            num_shared_blocks=sum(map((1).__lt__, ref_cnts)),
            num_cached_free_blocks=sum(map(cached_from.__contains__, free_blocks)),
        )


def decode_base(data: bytes, config: EngineConfigured, names_of: NamesOf) -> CheckpointBase:
    """Returns of a checkpoint that has no base itself what others need to refer to it. Raises `RecordingError`."""
    with _damage_reported(), _collector_paused():
        packed, base = _unpack(data, config, None)
        blocks, known, cached_from = _restore(packed, names_of, base)
        return CheckpointBase(blocks, cached_from, known)


@contextmanager
def _damage_reported() -> Iterator[None]:
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, msgspec.MsgspecError, MemoryError, struct.error) as error:
        raise RecordingError(
            f"a checkpoint of the recording is damaged ({error}); delete the rows of its table `checkpoints`: "
            "they only make it quicker"
        ) from error


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A pool's worth of new tuples would set off one garbage collection after another, for nothing: 3x the time."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_collecting:
            gc.enable()


def _unpack(data: bytes, config: EngineConfigured, base: CheckpointBase | None) -> tuple[_Checkpoint, CheckpointBase]:
    unzip = zlib.decompressobj()
    raw = unzip.decompress(data, _MAX_BYTES)
    if unzip.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {_MAX_BYTES:,} bytes")
    return msgspec.msgpack.decode(raw, type=_Checkpoint), _start(config.num_gpu_blocks) if base is None else base


def _restore(
    packed: _Checkpoint, names_of: NamesOf, base: CheckpointBase
) -> tuple[list[int], dict[str, _Known], dict[int, Owner]]:
    """Returns the blocks, what is known of the requests, and whose the published blocks are."""
    blocks = _copy_runs(base.blocks, _from_planes(packed.run_starts), packed.run_lengths)
    numbers = _sums(packed.requests)
    names = names_of({*numbers, *packed.owners})
    known = _known_requests(packed, [names[number] for number in numbers], base)
    cached_from = _owners_by_table(known, blocks)
    as_in_base = dict(base.cached_from)
    for block_id in _copy_runs(base.blocks, _from_planes(packed.unpublished_starts), packed.unpublished_lengths):
        del as_in_base[block_id]
    cached_from.update(as_in_base)
    for block_id in packed.not_published:
        del cached_from[block_id]
    owners = chain.from_iterable(map(repeat, map(names.__getitem__, packed.owners), packed.num_owned))
    owned = map(blocks.__getitem__, _sums(packed.owned_places))
    cached_from.update(zip(owned, zip(owners, _sums(packed.owned_indexes), strict=True), strict=True))
    return blocks, known, cached_from


def _start(num_gpu_blocks: int) -> CheckpointBase:
    """Returns the base of a checkpoint that has none: the pool as it was at the start."""
    return CheckpointBase(list(range(NULL_BLOCK + 1, num_gpu_blocks)), {}, {})


# --- requests ---------------------------------------------------------------------------------------------------------


def _live_requests(state: EngineState) -> list[RequestState]:
    """Returns the requests that have not ended, by arrival."""
    ended = set(state.ended_ids)
    return [request for request_id, request in state.requests.items() if request_id not in ended]


def _known_of(requests: Sequence[RequestState]) -> dict[str, _Known]:
    return {r.request_id: _Known(_figures_of(r), r.arrival_time, r.cache_salt) for r in requests}


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


def _runs(base: CheckpointBase, blocks: list[int]) -> tuple[list[int], list[int]]:
    """Returns where in the base to copy `blocks` from: starts and lengths, negative where a run goes backwards."""
    forwards, backwards, place_of = base.blocks, base.blocks[::-1], base.place_of
    last = len(forwards) - 1
    starts: list[int] = []
    lengths: list[int] = []
    begin = 0
    while begin < len(blocks):
        place = place_of[blocks[begin]]
        length = _common_length(blocks, begin, forwards, place)
        if length == 1:
            length = -_common_length(blocks, begin, backwards, last - place)
        starts.append(place)
        lengths.append(1 if length == -1 else length)
        begin += abs(length)
    return starts, lengths


def _common_length(a: list[int], a_begin: int, b: list[int], b_begin: int) -> int:
    """Returns how far the lists are the same from these places on, which they are at the places themselves.

    By comparing slices of doubled and then halved length: a run of thousands costs a dozen comparisons.
    """
    limit = min(len(a) - a_begin, len(b) - b_begin)
    if limit < 2 or a[a_begin + 1] != b[b_begin + 1]:
        return 1
    length, step = 2, 2
    while step:
        end = length + step
        if end <= limit and a[a_begin + length : a_begin + end] == b[b_begin + length : b_begin + end]:
            length, step = end, step * 2
        else:
            step //= 2
    return length


def _copy_runs(base: list[int], starts: Sequence[int], lengths: Sequence[int]) -> list[int]:
    if len(starts) != len(lengths):
        raise ValueError(f"{len(starts)} runs have {len(lengths)} lengths")
    blocks: list[int] = []
    done = 0
    for run in [index for index, length in enumerate(lengths) if length != 1]:  # single blocks are copied in one go
        blocks += map(base.__getitem__, starts[done:run])
        start, length = starts[run], lengths[run]
        if not (0 <= start < len(base) and -1 <= start + length <= len(base)):
            raise ValueError(f"{length} blocks from place {start} of {len(base)}")
        blocks += base[start : start + length] if length > 0 else base[start + length + 1 : start + 1][::-1]
        done = run + 1
    blocks += map(base.__getitem__, starts[done:])
    return blocks


def _owners_by_table(known: Mapping[str, _Known], blocks: list[int]) -> dict[int, Owner]:
    """Returns whose the published blocks of the tables would be, if each were its table's."""
    owners: dict[int, Owner] = {}
    begin = 0
    for request_id, of in known.items():
        num_blocks = of.figures[_NUM_BLOCKS]
        num_cached = min(of.figures[_NUM_CACHED_BLOCKS], num_blocks)
        owners.update(zip(blocks[begin : begin + num_cached], zip(repeat(request_id), range(num_cached)), strict=True))
        begin += num_blocks
    return owners


def _not_published(state: EngineState, requests: Sequence[RequestState]) -> list[int]:
    """Returns the blocks for which `_owners_by_table` is wrong altogether."""
    is_published = state.cached_from.__contains__
    missing: dict[int, None] = {}
    for request in requests:
        cached = request.block_ids[: request.num_cached_blocks]
        if not all(map(is_published, cached)):
            missing.update((block_id, None) for block_id in cached if not is_published(block_id))
    return list(missing)


def _owners(
    state: EngineState, changed_blocks: Collection[int], blocks: list[int], number_of: Callable[[str], int]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Returns the owners of changed blocks that do not follow from the one table in which the block stands.

    They are the owners' numbers, how many blocks each has, and these blocks' indexes and places, owner by owner.
    """
    requests, ended, ref_cnts = state.requests, set(state.ended_ids), state.ref_cnts
    by_owner: dict[str, list[tuple[int, int]]] = {}
    for block_id in changed_blocks:
        owner = state.cached_from.get(block_id)
        if owner is None:
            continue
        request_id, index = owner
        request = requests.get(request_id)
        if request is not None and ref_cnts[block_id] == 1 and request_id not in ended:
            table = request.block_ids
            if index < request.num_cached_blocks and index < len(table) and table[index] == block_id:
                continue
        by_owner.setdefault(request_id, []).append((index, block_id))
    if not by_owner:
        return [], [], [], []
    place_of = dict(zip(blocks, range(len(blocks)), strict=True))
    owned = [pair for pairs in by_owner.values() for pair in sorted(pairs)]
    return (
        [number_of(request_id) for request_id in by_owner],
        [len(pairs) for pairs in by_owner.values()],
        [index for index, _ in owned],
        [place_of[block_id] for _, block_id in owned],
    )


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
