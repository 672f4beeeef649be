"""Reads checkpoints. Trusts nothing: types and ranges are checked, sizes are bounded, damage raises `RecordingError`.

A far seek decodes two of them, a complete one and one that refers to it: where something is done for every block of
the pool, one of the interpreter's own loops does it.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain, compress, repeat
from operator import add

import msgspec

from kvscope.checkpoint.layout import NO_OWNER, NUM_FIGURES, STATUSES, Checkpoint, KnownRequest
from kvscope.checkpoint.numbers import from_planes, sums
from kvscope.errors import RecordingError
from kvscope.events import EngineConfigured
from kvscope.state import NULL_BLOCK, BlockOrigins, EngineState, FreeQueue, RequestState

NamesOf = Callable[[Collection[int]], Mapping[int, str]]

_MAX_BYTES = 1 << 28
"""Bound of what a checkpoint may unpack to: 256 MiB is far more than any pool needs."""


@dataclass(frozen=True, slots=True)
class DecodedBase:
    """A complete checkpoint, as far as others refer to it: of a pool of 32,768 blocks about 0.7 MB."""

    blocks: array[int]
    """All block tables by arrival, referenced blocks that stand in no table, then the free queue."""
    requests: dict[int, KnownRequest]
    """By number."""
    computed_by: list[str | None]
    """By block id, as in `BlockOrigins`, like the next."""
    indexes: list[int]


def decode_checkpoint(
    data: bytes, config: EngineConfigured, names_of: NamesOf, base: DecodedBase | None = None
) -> EngineState:
    """Returns a new state. Raises `RecordingError` on damage."""
    with _damage_reported():
        packed = _unpack(data)
        if packed.run_lengths is None:
            own = _base(packed, config.num_gpu_blocks, names_of)
        elif base is None:
            raise ValueError("it refers to another checkpoint")
        else:
            own = _changed(packed, base, names_of)
        return _state(packed, config, own, names_of(own.requests.keys()))


def decode_base(data: bytes, config: EngineConfigured, names_of: NamesOf) -> DecodedBase:
    """Returns of a complete checkpoint what others need to refer to it. Raises `RecordingError` on damage."""
    with _damage_reported():
        packed = _unpack(data)
        if packed.run_lengths is not None:
            raise ValueError("it refers to another checkpoint")
        return _base(packed, config.num_gpu_blocks, names_of)


def check_checkpoint(data: bytes) -> None:
    """Raises `RecordingError` where the bytes cannot be unpacked: they carry a checksum."""
    with _damage_reported():
        _unpack(data)


@contextmanager
def _damage_reported() -> Iterator[None]:
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, OverflowError, msgspec.MsgspecError, MemoryError) as error:
        raise RecordingError(f"a checkpoint of the recording is damaged ({error})") from error


def _unpack(data: bytes) -> Checkpoint:
    unzip = zlib.decompressobj()
    raw = unzip.decompress(data, _MAX_BYTES)
    if unzip.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {_MAX_BYTES:,} bytes")
    return msgspec.msgpack.decode(raw, type=Checkpoint)


def _state(packed: Checkpoint, config: EngineConfigured, known: DecodedBase, names: Mapping[int, str]) -> EngineState:
    block_ids = known.blocks.tolist()
    requests = _requests(packed, block_ids, known.requests, names)
    num_in_tables = sum(len(request.block_ids) for request in requests)
    ref_cnts = [0] * config.num_gpu_blocks
    for block_id in block_ids[:num_in_tables]:
        ref_cnts[block_id] += 1
    for block_id, count in packed.extra_references:
        ref_cnts[block_id] += count
    cached_from = BlockOrigins(known.computed_by, known.indexes)
    held_by = list(compress(known.computed_by, ref_cnts))
    free = block_ids[num_in_tables + packed.num_orphans :]
    num_unreferenced = ref_cnts.count(0)
    has_lost = num_unreferenced != len(free) + 1  # the null block
    lost = _lost(ref_cnts, free) if has_lost else set()
    groups = [dict.fromkeys(group) for group in packed.duplicate_groups]
    return EngineState(
        config=config,
        step=packed.step,
        token_budget=packed.token_budget,
        requests={request.request_id: request for request in requests},
        waiting=[requests[place].request_id for place in packed.waiting],
        running=[requests[place].request_id for place in packed.running],
        free_queue=FreeQueue(free),
        ref_cnts=ref_cnts,
        lost_blocks=lost,
        cached_from=cached_from,
        duplicate_groups={block_id: group for group in groups for block_id in group},
        num_shared_blocks=len(ref_cnts) - num_unreferenced - ref_cnts.count(1),
        num_cached_free_blocks=len(cached_from)
        - (len(held_by) - held_by.count(None))
        - sum(block_id in cached_from for block_id in lost),
    )


def _lost(ref_cnts: Sequence[int], free: Iterable[int]) -> set[int]:
    """Returns the blocks that nobody holds and that are not free."""
    return {block_id for block_id, ref_cnt in enumerate(ref_cnts) if not ref_cnt} - {NULL_BLOCK, *free}


# --- blocks -----------------------------------------------------------------------------------------------------------


def _base(packed: Checkpoint, num_blocks: int, names_of: NamesOf) -> DecodedBase:
    """Returns what a checkpoint that refers to no other holds."""
    blocks, owners = from_planes(packed.blocks), from_planes(packed.owners)
    runs = [(owners[run.start() // owners.itemsize], len(run[0])) for run in _SAME.finditer(owners.tobytes())]
    names = _names_of_owners((owner for owner, _ in runs), names_of)
    by_place = chain.from_iterable([repeat(names[owner], size // owners.itemsize) for owner, size in runs])
    computed_by: list[str | None] = [None] * num_blocks
    indexes = [0] * num_blocks
    for block_id, owner, index in zip(blocks, by_place, accumulate(from_planes(packed.indexes)), strict=True):
        computed_by[block_id] = owner
        indexes[block_id] = index
    return DecodedBase(blocks, _known_requests(packed, {}), computed_by, indexes)


def _changed(packed: Checkpoint, base: DecodedBase, names_of: NamesOf) -> DecodedBase:
    """Returns what a checkpoint holds that refers to a base."""
    blocks = _copied_runs(base.blocks, from_planes(packed.blocks), packed.run_lengths or ())
    computed_by, indexes = base.computed_by.copy(), base.indexes.copy()
    owners = sums(packed.changed_owners)
    names = _names_of_owners(owners, names_of)
    changed = map(blocks.__getitem__, accumulate(packed.changed_places))
    now = zip(changed, map(names.__getitem__, owners), accumulate(packed.changed_indexes), strict=True)
    for block_id, owner, index in now:
        computed_by[block_id] = owner
        indexes[block_id] = index
    return DecodedBase(blocks, _known_requests(packed, base.requests), computed_by, indexes)


_SAME = re.compile(rb"(.{4})\1*", re.DOTALL)
"""Equal numbers of four bytes, one after another: a table's blocks were mostly computed by one request."""


def _names_of_owners(owners: Iterable[int], names_of: NamesOf) -> dict[int, str | None]:
    """Returns the names of the requests that computed blocks, None for nobody. Raises `LookupError`."""
    numbers = set(owners) - {NO_OWNER}
    names = names_of(numbers)
    return {NO_OWNER: None} | {number: names[number] for number in numbers}


def _copied_runs(base: array[int], starts: array[int], lengths: Sequence[int]) -> array[int]:
    if len(starts) != len(lengths):
        raise ValueError(f"{len(starts)} runs have {len(lengths)} lengths")
    copied = array("i")
    done = 0
    for run in [index for index, length in enumerate(lengths) if length != 1]:  # single places are copied in one go
        copied.extend(map(base.__getitem__, starts[done:run]))
        start, length = starts[run], lengths[run]
        if not (0 <= start < len(base) and -1 <= start + length <= len(base)):
            raise ValueError(f"{length} blocks from place {start} of {len(base)}")
        copied += base[start : start + length] if length > 0 else base[start + length + 1 : start + 1][::-1]
        done = run + 1
    copied.extend(map(base.__getitem__, starts[done:]))
    return copied


# --- requests ---------------------------------------------------------------------------------------------------------


def _known_requests(packed: Checkpoint, base: Mapping[int, KnownRequest]) -> dict[int, KnownRequest]:
    """Returns figures and constants of each request, by arrival."""
    numbers, new_requests = sums(packed.requests), iter(packed.new_requests)
    if numbers and len(packed.columns) != NUM_FIGURES:
        raise ValueError(f"{len(packed.columns)} figures a request")
    known: dict[int, KnownRequest] = {}
    for number, row in zip(numbers, zip(*packed.columns, strict=True), strict=True):
        old = base.get(number)
        if old is not None:
            known[number] = KnownRequest(list(map(add, old.figures, row)), *old[1:])
            continue
        new = next(new_requests, None)
        if new is None:
            raise ValueError(f"nothing is known of request {number}")
        known[number] = KnownRequest(list(row), new.arrival_time, new.cache_salt, new.lora_name)
    return known


def _requests(
    packed: Checkpoint, block_ids: list[int], known: Mapping[int, KnownRequest], names: Mapping[int, str]
) -> list[RequestState]:
    requests: list[RequestState] = []
    begin = 0
    for place, (number, of) in enumerate(known.items()):
        (
            status,
            num_blocks,
            arrival_step,
            num_prompt_tokens,
            max_tokens,
            priority,
            num_tokens,
            num_computed_tokens,
            num_cached_blocks,
            num_prefill_tokens,
            num_hit_tokens,
            num_own_hit_tokens,
            num_preemptions,
            num_lost_tokens,
            waiting_since_step,
            first_admitted_step,
            admitted_step,
            first_token_step,
        ) = of.figures
        requests.append(
            RequestState(
                request_id=names[number],
                arrival_step=arrival_step,
                num_prompt_tokens=num_prompt_tokens,
                max_tokens=max_tokens,
                priority=priority,
                arrival_time=of.arrival_time,
                cache_salt=of.cache_salt,
                lora_name=of.lora_name,
                status=STATUSES[status],
                num_tokens=num_tokens,
                num_computed_tokens=num_computed_tokens,
                block_ids=block_ids[begin : begin + num_blocks],
                num_cached_blocks=num_cached_blocks,
                draft_token_ids=tuple(packed.drafts.get(place, ())),
                num_prefill_tokens=num_prefill_tokens,
                num_hit_tokens=num_hit_tokens,
                num_own_hit_tokens=num_own_hit_tokens,
                num_preemptions=num_preemptions,
                num_lost_tokens=num_lost_tokens,
                waiting_since_step=waiting_since_step,
                first_admitted_step=first_admitted_step - 1 if first_admitted_step else None,
                admitted_step=admitted_step - 1 if admitted_step else None,
                first_token_step=first_token_step - 1 if first_token_step else None,
            )
        )
        begin += num_blocks
    return requests
