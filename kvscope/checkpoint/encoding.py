"""Makes checkpoints. Lists of a pool's length are gone through by the interpreter's own loops only: it is done between
two steps, and the recorder's queue waits meanwhile."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from operator import attrgetter, sub

import msgspec

from kvscope.checkpoint.layout import (
    FIGURES,
    NO_OWNER,
    NUM_FIGURES,
    STATUSES,
    STEPS,
    Checkpoint,
    KnownRequest,
    NewRequest,
)
from kvscope.checkpoint.numbers import differences, planes
from kvscope.state import EngineState, RequestState

NumberOf = Callable[[str], int]

_NOTHING = [0] * NUM_FIGURES
_figures_of_request = attrgetter(*FIGURES)
_steps_of_request = attrgetter(*STEPS)


@dataclass(frozen=True, slots=True)
class CheckpointBase:
    """What is kept of a complete checkpoint, to write others that refer to it."""

    blocks: list[int]
    """All block tables by arrival, referenced blocks that stand in no table, then the free queue."""
    requests: dict[int, KnownRequest]
    """By number."""
    place_of: dict[int, int] = field(default_factory=dict, compare=False)
    """Each block's (last) place in `blocks`; filled by the first that refers to it."""


def encode_complete(state: EngineState, number_of: NumberOf) -> tuple[bytes, CheckpointBase]:
    """Returns the state after its last step, and what is needed to refer to it."""
    requests = _live_requests(state)
    blocks, extra, num_orphans = _blocks_of(state, requests)
    owners, indexes = _publication(state, blocks, number_of)
    base = CheckpointBase(blocks, _known_of(requests, number_of))
    pool = (planes(blocks), None, planes(owners), planes(differences(indexes)))
    return _encode(state, {}, base.requests, pool, extra, num_orphans, ([], [], [])), base


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
    pool = (planes(starts), lengths, b"", b"")
    return _encode(state, base.requests, known, pool, extra, num_orphans, (places, owners, indexes))


def _encode(
    state: EngineState,
    known_before: Mapping[int, KnownRequest],
    known: Mapping[int, KnownRequest],
    pool: tuple[bytes, list[int] | None, bytes, bytes],
    extra_references: list[tuple[int, int]],
    num_orphans: int,
    changes: tuple[list[int], list[int], list[int]],
) -> bytes:
    requests = _live_requests(state)
    place = {request.request_id: index for index, request in enumerate(requests)}
    before = [known_before[number].figures if number in known_before else _NOTHING for number in known]
    rows = [map(sub, of.figures, old) for of, old in zip(known.values(), before, strict=True)]
    packed = Checkpoint(
        step=state.step,
        token_budget=state.token_budget,
        requests=differences(list(known)),
        new_requests=[
            NewRequest(of.arrival_time, of.cache_salt, of.lora_name)
            for number, of in known.items()
            if number not in known_before
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
        changed_places=differences(changes[0]),
        changed_owners=differences(changes[1]),
        changed_indexes=differences(changes[2]),
        duplicate_groups=[list(g) for g in {id(g): g for g in state.duplicate_groups.values()}.values()],
    )
    return zlib.compress(msgspec.msgpack.encode(packed), 6)


# --- requests ---------------------------------------------------------------------------------------------------------


def _live_requests(state: EngineState) -> list[RequestState]:
    """Returns the requests that have not ended, by arrival."""
    ended = set(state.ended_ids)
    return [request for request_id, request in state.requests.items() if request_id not in ended]


def _known_of(requests: Sequence[RequestState], number_of: NumberOf) -> dict[int, KnownRequest]:
    return {
        number_of(r.request_id): KnownRequest(_figures_of(r), r.arrival_time, r.cache_salt, r.lora_name)
        for r in requests
    }


def _figures_of(request: RequestState) -> list[int]:
    return [
        STATUSES.index(request.status),
        len(request.block_ids),
        *_figures_of_request(request),
        *[0 if step is None else step + 1 for step in _steps_of_request(request)],
    ]


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
    block_ids = list(blocks)
    names = list(map(state.cached_from.request_ids.__getitem__, block_ids))
    numbers = {name: NO_OWNER if name is None else number_of(name) for name in dict.fromkeys(names)}
    return list(map(numbers.__getitem__, names)), list(map(state.cached_from.indexes.__getitem__, block_ids))


def _runs(base: CheckpointBase, blocks: list[int]) -> tuple[list[int], list[int]]:
    """Returns where in the base to copy `blocks` from: starts and lengths, negative where a run goes backwards."""
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
