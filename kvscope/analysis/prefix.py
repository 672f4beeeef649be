"""Which cached blocks a request would hit at a step, found by comparing tokens.

Equal chain hashes mean equal tokens from the start on and equal extra keys, so tokens answer without hashes, which
readers do not always have. The lookup is the scheduler's: the longest run of published blocks, at most all but one
token, and of several blocks with one content the first published.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.analysis.memory import TOKEN_BYTES, remembered
from kvscope.engine.scheduling.rules import max_hit_blocks
from kvscope.replay.timeline import Moment, Timeline


@dataclass(frozen=True, slots=True)
class _Published:
    """The published blocks of a moment, by who computed them."""

    block_ids: dict[tuple[str, int], int]
    """By request and index in its table; of several blocks with one content the first published."""
    origins: dict[bytes, list[tuple[str, int]]]
    """By the tokens of a first block: the requests that begin so and have published blocks, and how far these reach
    into their tables (there may be gaps)."""


def hit_block_ids(timeline: Timeline, moment: Moment, request_id: str) -> list[int]:
    """Returns the blocks that a lookup of a waiting request's tokens finds, in order."""
    state = moment.state
    if state.config is None or not state.cached_from:
        return []
    request = state.requests[request_id]
    size = state.config.block_size * TOKEN_BYTES
    limit = max_hit_blocks(request.num_tokens, state.config.block_size)
    if limit == 0:
        return []
    memory = remembered(timeline)
    tokens = memory.packed_tokens(timeline, request_id, moment.step, request.num_tokens)
    published = _published(timeline, moment)
    origins: list[tuple[str, int]] = []
    for origin_id, num_blocks in published.origins.get(tokens[:size], ()):
        if cache_salt(timeline, moment, origin_id) == request.cache_salt:
            others = memory.packed_tokens(timeline, origin_id, moment.step, num_blocks * state.config.block_size)
            origins.append((origin_id, min(num_blocks, _num_common_pieces(tokens, others, size))))
    hits: list[int] = []
    for index in range(limit):
        for origin_id, length in origins:
            block_id = published.block_ids.get((origin_id, index)) if index < length else None
            if block_id is not None:
                hits.append(block_id)
                break
        else:
            break
    return hits


def num_common_tokens(timeline: Timeline, moment: Moment, request_id: str, other_id: str) -> int:
    """Returns how many leading tokens two requests share, whatever their salts are."""
    memory = remembered(timeline)
    ours = memory.packed_tokens(timeline, request_id, moment.step, 1)
    theirs = memory.packed_tokens(timeline, other_id, moment.step, 1)
    return _num_common_pieces(ours, theirs, TOKEN_BYTES)


def cache_salt(timeline: Timeline, moment: Moment, request_id: str) -> str | None:
    """Returns the salt of a request, live or ended."""
    request = moment.state.requests.get(request_id)
    if request is not None:
        return request.cache_salt
    row = remembered(timeline).ended_request_row(timeline, request_id)
    return None if row is None else row.cache_salt


def _published(timeline: Timeline, moment: Moment) -> _Published:
    cache = remembered(timeline).of_moment(moment)
    found = cache.get("published")
    if found is None:
        found = cache["published"] = _index(timeline, moment)
    assert isinstance(found, _Published)
    return found


def _index(timeline: Timeline, moment: Moment) -> _Published:
    state = moment.state
    assert state.config is not None
    block_size = state.config.block_size
    block_ids = {origin: block_id for block_id, origin in state.cached_from.items()}
    num_blocks: dict[str, int] = {}
    for request_id, index in block_ids:
        if num_blocks.get(request_id, 0) <= index:
            num_blocks[request_id] = index + 1
    for block_id, group in state.duplicate_groups.items():
        block_ids[state.cached_from[block_id]] = next(iter(group))
    memory = remembered(timeline)
    origins: dict[bytes, list[tuple[str, int]]] = {}
    for request_id, count in num_blocks.items():
        tokens = memory.packed_tokens(timeline, request_id, moment.step, count * block_size)
        origins.setdefault(tokens[: block_size * TOKEN_BYTES], []).append((request_id, count))
    return _Published(block_ids, origins)


def _num_common_pieces(ours: bytes, theirs: bytes, size: int) -> int:
    """Returns how many leading pieces of `size` bytes are equal, by halving."""
    low, high = 0, min(len(ours), len(theirs)) // size
    while low < high:
        middle = (low + high + 1) // 2
        if ours[low * size : middle * size] == theirs[low * size : middle * size]:
            low = middle
        else:
            high = middle - 1
    return low
