"""Finds events by what they name, at SQL's speed: a block, a hash, a token, a kind.

Packed lists are searched as they lie in the file (`instr`); what SQL finds is decoded and looked at again, since a
character may stand for another number of the row. Each call reads a range of steps: who reads much asks for little at
a time.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from kvscope import events as ev
from kvscope.errors import RecordingError
from kvscope.recording import layouts as at
from kvscope.recording.packing import JSON_MARK, MAX_VALUE, pack_one, pack_token_ids, unpack, unpack_token_ids
from kvscope.replay.recording_file import RecordingFile

BLOCK_KINDS: tuple[type[ev.Event], ...] = (
    ev.BlockAllocated,
    ev.BlockCached,
    ev.BlockEvicted,
    ev.BlockTouched,
    ev.BlockReleased,
    ev.BlockUncached,
)
"""What happens to blocks."""

_STEP_TABLE_KINDS = (ev.StepStarted, ev.StepFinished, ev.TokensSampled)
_BLOCK_NUMBERS = ", ".join(str(number) for number in (at.BLOCK_STEPS, *(at.KIND_OF[kind] for kind in BLOCK_KINDS)))
_HASHED_NUMBERS = f"{at.BLOCK_STEPS}, {at.KIND_OF[ev.BlockCached]}, {at.KIND_OF[ev.BlockEvicted]}"
_BETWEEN = "step BETWEEN ? AND ?"


def blocks_of(event: ev.Event) -> tuple[int, ...]:
    """Returns the blocks that an event of `BLOCK_KINDS` names."""
    if isinstance(event, ev.BlockReleased):
        return event.freed_to_head + event.freed_to_tail + event.still_held
    return getattr(event, "block_ids", ())


def block_events(file: RecordingFile, block_id: int, first_step: int, last_step: int) -> Iterator[tuple[int, ev.Event]]:
    """Yields `(step, event)` in order: what happened to one block."""
    if not 0 <= block_id <= MAX_VALUE:
        return
    condition = f"{_BETWEEN} AND kind IN ({_BLOCK_NUMBERS}) AND (block = ? OR instr(data, ?) OR substr(data, 1, 1) = ?)"
    for step, event in file.events_where(condition, (first_step, last_step, block_id, pack_one(block_id), JSON_MARK)):
        if block_id in blocks_of(event):
            yield step, event


def hash_events(
    file: RecordingFile, digits: str, first_step: int, last_step: int
) -> Iterator[tuple[int, ev.BlockCached | ev.BlockEvicted]]:
    """Yields `(step, event)` in order: the publications and evictions of hashes that begin with hexadecimal digits."""
    digits = digits.upper()
    condition = f"{_BETWEEN} AND kind IN ({_HASHED_NUMBERS}) AND (instr(hex(hashes), ?) OR substr(data, 1, 1) = ?)"
    for step, event in file.events_where(condition, (first_step, last_step, digits, JSON_MARK)):
        if isinstance(event, ev.BlockCached | ev.BlockEvicted) and any(
            f"{block_hash:016X}".startswith(digits) for block_hash in event.block_hashes
        ):
            yield step, event


def kind_events(
    file: RecordingFile, kinds: Collection[type[ev.Event]], first_step: int, last_step: int
) -> Iterator[tuple[int, ev.Event]]:
    """Yields `(step, event)` in order: the events of some kinds. Passes over steps that have none of them."""
    if set(kinds) == {ev.TokensSampled} and not file.meta("has_unpacked_samples"):
        yield from _sampled(file, first_step, last_step)
        return
    if any(kind in kinds for kind in _STEP_TABLE_KINDS):  # these lie partly outside of their rows
        for step, events in file.select_events(kinds, first_step, last_step):
            for event in events:
                yield step, event
        return
    numbers = {at.KIND_OF[kind] for kind in kinds}
    if {ev.BlockEvicted, ev.BlockAllocated, ev.BlockCached}.intersection(kinds):
        numbers.add(at.BLOCK_STEPS)
    condition = f"{_BETWEEN} AND kind IN ({', '.join(map(str, sorted(numbers)))})"
    for step, event in file.events_where(condition, (first_step, last_step)):
        if type(event) in kinds:
            yield step, event


def _sampled(file: RecordingFile, first_step: int, last_step: int) -> Iterator[tuple[int, ev.TokensSampled]]:
    rows = file.rows(
        f"SELECT step, request_list, num_tokens, token_ids FROM sampled_tokens WHERE {_BETWEEN} ORDER BY step",
        (first_step, last_step),
    )
    for step, request_list, counts, token_ids in rows:
        with _damage_reported(file, step):
            event = ev.TokensSampled(
                request_ids=file.requests_of(request_list),
                token_ids=unpack_token_ids(token_ids),
                num_tokens=None if counts is None else unpack(counts),
            )
        yield step, event


def steps_sampling(file: RecordingFile, token_id: int, first_step: int, last_step: int) -> list[tuple[int, list[int]]]:
    """Returns the steps in which a token was generated, with its places among the step's tokens."""
    if not 0 <= token_id < 1 << 24:
        return []
    wide = token_id.to_bytes(3, "big")
    condition = "instr(token_ids, ?)" if token_id >= 1 << 16 else "(instr(token_ids, ?) OR instr(token_ids, ?))"
    needles: Sequence[bytes] = (wide,) if token_id >= 1 << 16 else (wide, pack_token_ids((token_id,))[1:])
    found = []
    rows = file.rows(
        f"SELECT step, token_ids FROM sampled_tokens WHERE {_BETWEEN} AND {condition}",
        (first_step, last_step, *needles),
    )
    for step, packed in rows:
        with _damage_reported(file, step):
            places = [place for place, other in enumerate(unpack_token_ids(packed)) if other == token_id]
        if places:
            found.append((step, places))
    return found


@contextmanager
def _damage_reported(file: RecordingFile, step: int) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, LookupError, struct.error) as error:
        raise RecordingError(f"{file.path}: the sampled tokens of step {step} are damaged ({error})") from error
