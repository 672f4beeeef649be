"""Which cached blocks a request would hit at a step, found by its tokens.

Equal chain hashes mean equal tokens from the start on and equal extra keys, so tokens answer without the engine's
hashes, which readers do not always have. The lookup is the scheduler's: the longest run of published blocks, at most
all but one token, and of several blocks with one content the first published.

Contents are compared by a 64-bit chain of Python's own hash: quicker than the engine's, and as long as what recordings
keep of it.
"""

from __future__ import annotations

from array import array
from functools import partial

from kvscope.analysis.memory import TOKEN_BYTES, remembered
from kvscope.analysis.published import PublishedBlocks
from kvscope.engine.scheduling import hashing
from kvscope.engine.scheduling.rules import max_hit_blocks
from kvscope.replay.timeline import Moment, Timeline

_MAX_CHAINS = 20_000
"""Requests whose chains are kept; each costs eight bytes a block."""


def hit_block_ids(timeline: Timeline, moment: Moment, request_id: str) -> list[int]:
    """Returns the blocks that a lookup of a waiting request's tokens finds, in order."""
    state = moment.state
    if state.config is None or not state.cached_from:
        return []
    limit = max_hit_blocks(state.requests[request_id].num_tokens, state.config.block_size)
    if limit == 0:
        return []
    published = _published(timeline)
    read = partial(_chain, timeline, moment, published)
    published.move_to(timeline, moment, read)
    if published.first_at(read(request_id, 1)[0], moment) is None:
        return []  # mostly so, and then its further tokens need not be read
    chain = read(request_id, limit)
    hits: list[int] = []
    while len(hits) < limit:
        block_id = published.first_at(chain[len(hits)], moment)
        if block_id is not None:
            hits.append(block_id)
        elif not published.reveal(chain[: len(hits)], read):
            break
    return hits


def extra_keys(timeline: Timeline, moment: Moment, request_id: str) -> tuple[str, ...]:
    """Returns what besides its tokens keeps a request's blocks apart, salt and adapter; it may have ended."""
    request = moment.state.requests.get(request_id) or remembered(timeline).ended_request_row(timeline, request_id)
    return () if request is None else hashing.extra_keys(request.cache_salt, request.lora_name)


def _chain(
    timeline: Timeline, moment: Moment, published: PublishedBlocks, request_id: str, num_blocks: int
) -> array[int]:
    """Returns at least `num_blocks` links of a request's chain, where it has so many tokens."""
    chain = published.chains.setdefault(request_id, array("q"))
    if len(chain) < num_blocks:
        assert moment.state.config is not None
        block_size = moment.state.config.block_size
        size = block_size * TOKEN_BYTES
        tokens = remembered(timeline).packed_tokens(timeline, request_id, moment.step, num_blocks * block_size)
        link = chain[-1] if chain else hash(extra_keys(timeline, moment, request_id))
        for start in range(len(chain) * size, len(tokens) - size + 1, size):
            link = hash((link, tokens[start : start + size]))
            chain.append(link)
    return chain


def _published(timeline: Timeline) -> PublishedBlocks:
    kept = remembered(timeline).kept("prefix")
    published = kept.get("published")
    if not isinstance(published, PublishedBlocks) or len(published.chains) > _MAX_CHAINS:
        published = kept["published"] = PublishedBlocks()
    return published
