"""Which cached blocks a request would hit at a step, found by its tokens.

Equal chain hashes mean equal tokens from the start on and equal extra keys, so tokens answer without the engine's
hashes, which readers do not always have. The lookup is the scheduler's: the longest run of published blocks, at most
all but one token, and of several blocks with one content the first published.

Contents are compared by a 64-bit chain of Python's own hash: quicker than the engine's, and as long as what recordings
keep of it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from kvscope.analysis.memory import TOKEN_BYTES, remembered
from kvscope.engine.scheduling.rules import max_hit_blocks
from kvscope.replay.timeline import Moment, Timeline

_MAX_CHAINS = 20_000
"""Requests whose chains are kept; each costs eight bytes a block."""


@dataclass(slots=True)
class _Published:
    """The published blocks of a moment by content, made as far as it is asked for."""

    origins: dict[int, list[str]]
    """By the chain of a first block: the requests that begin so and have published blocks."""
    known: set[int] = field(default_factory=set)
    """First blocks whose requests are in `block_ids`."""
    block_ids: dict[int, int] = field(default_factory=dict)
    """By chain, the first published block with that content."""
    behind: dict[int, dict[str, list[tuple[int, int]]]] = field(default_factory=dict)
    """Blocks whose content is not read yet (outputs are slow to read, and few prompts hold another one's output).

    By the last link that is known of their request: the request, and its further indexes and blocks."""


def hit_block_ids(timeline: Timeline, moment: Moment, request_id: str) -> list[int]:
    """Returns the blocks that a lookup of a waiting request's tokens finds, in order."""
    state = moment.state
    if state.config is None or not state.cached_from:
        return []
    limit = max_hit_blocks(state.requests[request_id].num_tokens, state.config.block_size)
    if limit == 0:
        return []
    first = _chain(timeline, moment, request_id, 1)[0]
    published = _published(timeline, moment)
    if first not in published.origins:
        return []
    if first not in published.known:
        _add_blocks(timeline, moment, published, first)
    chain = _chain(timeline, moment, request_id, limit)
    hits: list[int] = []
    while len(hits) < limit:
        block_id = published.block_ids.get(chain[len(hits)])
        if block_id is not None:
            hits.append(block_id)
        elif not _reveal(timeline, moment, published, chain[: len(hits)]):
            break
    return hits


def cache_salt(timeline: Timeline, moment: Moment, request_id: str) -> str | None:
    """Returns the salt of a request, live or ended."""
    request = moment.state.requests.get(request_id)
    if request is not None:
        return request.cache_salt
    row = remembered(timeline).ended_request_row(timeline, request_id)
    return None if row is None else row.cache_salt


def _chain(timeline: Timeline, moment: Moment, request_id: str, num_blocks: int) -> array[int]:
    """Returns at least `num_blocks` links of a request's chain; each stands for all tokens up to its block's end."""
    memory = remembered(timeline)
    chains = memory.kept("chains")
    chain = chains.get(request_id)
    if not isinstance(chain, array):
        if len(chains) >= _MAX_CHAINS:
            chains.clear()
        chain = chains[request_id] = array("q")
    if len(chain) < num_blocks:
        assert moment.state.config is not None
        block_size = moment.state.config.block_size
        size = block_size * TOKEN_BYTES
        tokens = memory.packed_tokens(timeline, request_id, moment.step, num_blocks * block_size)
        link = chain[-1] if chain else hash(cache_salt(timeline, moment, request_id))
        for start in range(len(chain) * size, len(tokens) - size + 1, size):
            link = hash((link, tokens[start : start + size]))
            chain.append(link)
    return chain


def _published(timeline: Timeline, moment: Moment) -> _Published:
    cache = remembered(timeline).of_moment(moment)
    found = cache.get("published")
    if found is None:
        found = cache["published"] = _index(timeline, moment)
    assert isinstance(found, _Published)
    return found


def _index(timeline: Timeline, moment: Moment) -> _Published:
    origins: dict[int, list[str]] = {}
    for request_id in {request_id for request_id, _ in moment.state.cached_from.values()}:
        origins.setdefault(_chain(timeline, moment, request_id, 1)[0], []).append(request_id)
    return _Published(origins)


def _add_blocks(timeline: Timeline, moment: Moment, published: _Published, first: int) -> None:
    """Adds the blocks of all requests that begin with a first block.

    The pass over the pool is what costs: what other waiting requests will ask for is added in the same one, as far as
    their first blocks are known from an earlier step.
    """
    chains = remembered(timeline).kept("chains")
    wanted = {first}
    for request_id in moment.state.waiting:
        chain = chains.get(request_id)
        if isinstance(chain, array) and chain and chain[0] in published.origins:
            wanted.add(chain[0])
    wanted -= published.known
    owners = {owner: _chain(timeline, moment, owner, 1) for link in wanted for owner in published.origins[link]}
    groups = moment.state.duplicate_groups
    for block_id, (request_id, index) in moment.state.cached_from.items():
        known = owners.get(request_id)
        if known is None:
            continue
        if index < len(known):
            group = groups.get(block_id)
            published.block_ids[known[index]] = block_id if group is None else next(iter(group))
        else:
            published.behind.setdefault(known[-1], {}).setdefault(request_id, []).append((index, block_id))
    published.known |= wanted


def _reveal(timeline: Timeline, moment: Moment, published: _Published, links: array[int]) -> bool:
    """Reads what lies behind links that a lookup has passed; False where nothing does."""
    passed = [published.behind.pop(link) for link in links if link in published.behind]
    groups = moment.state.duplicate_groups
    for request_id, blocks in (
        (request_id, blocks) for by_request in passed for request_id, blocks in by_request.items()
    ):
        chain = _chain(timeline, moment, request_id, max(blocks)[0] + 1)
        for index, block_id in blocks:
            group = groups.get(block_id)
            published.block_ids[chain[index]] = block_id if group is None else next(iter(group))
    return bool(passed)
