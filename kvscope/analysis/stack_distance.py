"""Prefix hits that eviction lost, and how much larger the pool would have had to be to keep them.

Every content (a block's tokens and all before them) has a place on a stack, the one used last on top; held contents are
in use now. The distance of a content at the moment it is asked for is the number of distinct contents that were used
since it was given back, itself and all held ones included, and of the most blocks that held tokens without being cached
in that time: a pool of so many blocks, that gives up the content used longest ago, still has it. The peak of the
uncached ones may lie at another time than that of the others, and a larger pool changes what is admitted when, so the
figure is an estimate: `kvscope whatif` with a larger pool shows what a run makes of it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from kvscope import events as ev
from kvscope.engine.scheduling import hashing, rules
from kvscope.replay.timeline import Timeline

_KINDS: tuple[type[ev.Event], ...] = (
    ev.RequestArrived,
    ev.PrefixLookedUp,
    ev.RequestAdmitted,
    ev.RequestResumed,
    ev.BlockAllocated,
    ev.BlockTouched,
    ev.BlockReleased,
    ev.BlockCached,
    ev.BlockEvicted,
    ev.BlockUncached,
    ev.TokensSampled,
    ev.RequestFinished,
    ev.RequestAborted,
)


@dataclass(frozen=True, slots=True)
class LostBlock:
    """A block that an admission would have hit, had it not been evicted."""

    step: int
    request_id: str
    index: int
    distance: int
    """Blocks that the pool must have for it to be there still."""


@dataclass(slots=True)
class LostHits:
    """All of a run."""

    block_size: int = 1
    pool: int = 0
    misses: list[LostBlock] = field(default_factory=list)
    num_hit_tokens: int = 0
    num_queried_tokens: int = 0

    @property
    def num_lost_tokens(self) -> int:
        """Tokens computed again because their block had been evicted."""
        return len(self.misses) * self.block_size

    @property
    def hit_rate_pct(self) -> float:
        """As it was, of all tokens that were looked up."""
        return self._rate(self.num_hit_tokens)

    @property
    def possible_hit_rate_pct(self) -> float:
        """With nothing evicted."""
        return self._rate(self.num_hit_tokens + self.num_lost_tokens)

    def _rate(self, num_tokens: int) -> float:
        return round(100 * num_tokens / self.num_queried_tokens, 1) if self.num_queried_tokens else 0.0

    def more_blocks_for(self, share: float) -> int:
        """Returns how many more blocks keep at least this share of the lost tokens."""
        needed = sorted(max(miss.distance - self.pool, 1) for miss in self.misses)
        return needed[max(math.ceil(len(needed) * share), 1) - 1] if needed else 0

    def curve(self) -> list[tuple[int, int]]:
        """Returns `(more blocks, tokens kept)`, at each number of blocks at which more is kept."""
        points: dict[int, int] = {}
        for kept, more in enumerate(sorted(max(miss.distance - self.pool, 1) for miss in self.misses), 1):
            points[more] = kept * self.block_size
        return list(points.items())


Content = int
"""A block hash of eight bytes."""


def lost_hits(timeline: Timeline) -> LostHits:
    """Follows the cache over a whole recording; empty where caching is off."""
    found = LostHits()
    config = timeline.config
    if config is None or not config.settings.get("enable_prefix_caching", True):
        return found
    found.block_size, found.pool = config.block_size, max(config.num_gpu_blocks - 1, 0)
    stack = _Stack(found)
    for step, events in timeline.select_events(_KINDS, timeline.first_step, timeline.last_step):
        for event in events:
            stack.follow(step, event)
        stack.note_peak()
    return found


class _Stack:
    def __init__(self, found: LostHits) -> None:
        self._found = found
        self._clock = 0
        self._used: OrderedDict[Content, int] = OrderedDict()
        """Every content that was ever cached, with the clock of its last use; what was used last is at the end."""
        self._peaks: list[tuple[int, int]] = []
        """`(clock, uncached held blocks)` before each release, as far as no later one had as many: falling counts."""
        self._held: dict[Content, int] = {}
        """References of each content that is in block tables."""
        self._private: set[int] = set()
        """Held blocks that are not cached: they need a place too."""
        self._content: dict[int, Content] = {}
        """Of each cached block."""
        self._ref_cnt: dict[int, int] = {}
        self._cached: dict[Content, int] = {}
        """How many cached blocks have the content."""
        self._tokens: dict[str, list[int]] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        """What besides its tokens is hashed of a request."""
        self._hashes: dict[str, list[bytes]] = {}
        self._last_lookup: tuple[int, str, list[LostBlock]] = (-1, "", [])

    def follow(self, step: int, event: ev.Event) -> None:
        match event:
            case ev.RequestArrived():
                self._tokens[event.request_id] = list(event.prompt_token_ids)
                self._keys[event.request_id] = hashing.extra_keys(event.cache_salt, event.lora_name)
                self._hashes[event.request_id] = []
            case ev.TokensSampled():
                start = 0
                for index, request_id in enumerate(event.request_ids):
                    number = 1 if event.num_tokens is None else event.num_tokens[index]
                    self._tokens[request_id] += event.token_ids[start : start + number]
                    start += number
            case ev.PrefixLookedUp():
                # What it missed counts only if the request is then admitted in this step.
                self._last_lookup = (step, event.request_id, self._missed(step, event))
            case ev.RequestAdmitted() | ev.RequestResumed():
                self._admit(step, event)
            case ev.BlockAllocated():
                self._ref_cnt.update(dict.fromkeys(event.block_ids, 1))
                self._private.update(event.block_ids)
            case ev.BlockTouched():
                for block_id in event.block_ids:
                    self._ref_cnt[block_id] = self._ref_cnt.get(block_id, 0) + 1
                    self._hold(block_id, 1)
            case ev.BlockReleased():
                self.note_peak()
                for block_id in (*event.freed_to_head, *event.freed_to_tail, *event.still_held):
                    self._ref_cnt[block_id] -= 1
                    self._private.discard(block_id)
                    self._hold(block_id, -1)
            case ev.BlockCached():
                for block_id, block_hash in zip(event.block_ids, event.block_hashes, strict=True):
                    self._content[block_id] = block_hash
                    self._private.discard(block_id)
                    self._cached[block_hash] = self._cached.get(block_hash, 0) + 1
                    self._hold(block_id, self._ref_cnt.get(block_id, 1))
            case ev.BlockEvicted() | ev.BlockUncached():
                for block_id in event.block_ids:
                    content = self._content.pop(block_id, None)
                    if content is not None:
                        self._cached[content] -= 1
                        if self._ref_cnt.get(block_id):
                            self._private.add(block_id)
            case ev.RequestFinished() | ev.RequestAborted():
                for known in (self._tokens, self._keys, self._hashes):
                    known.pop(event.request_id, None)
            case _:
                pass

    def _hold(self, block_id: int, number: int) -> None:
        content = self._content.get(block_id)
        if content is not None:
            held = self._held.pop(content, 0) + number
            if held > 0:
                self._held[content] = held
            self._clock += 1
            self._used[content] = self._clock
            self._used.move_to_end(content)

    def note_peak(self) -> None:
        """Takes note of the blocks that hold tokens and are not cached."""
        number = len(self._private)
        while self._peaks and self._peaks[-1][1] <= number:
            self._peaks.pop()
        self._peaks.append((self._clock, number))

    def _missed(self, step: int, event: ev.PrefixLookedUp) -> list[LostBlock]:
        request_id, size = event.request_id, self._found.block_size
        tokens: Sequence[int] = self._tokens[request_id]
        limit = rules.max_hit_blocks(len(tokens), size)
        hashes = self._hashes[request_id]
        if len(hashes) < limit:
            hashing.extend_block_hashes(hashes, tokens, limit, size, self._keys[request_id])
        missed: list[LostBlock] = []
        furthest = 0  # a block can only be hit if all before it are
        for index in range(len(event.block_ids), limit):
            content = hashing.short_hash(hashes[index])
            if content not in self._used:
                break
            if not self._cached.get(content):
                furthest = max(furthest, self._distance(content))
            missed.append(LostBlock(step, request_id, index, furthest))
        return missed

    def _distance(self, content: Content) -> int:
        since = set(takewhile(lambda key: key != content, reversed(self._used)))
        first_peak = bisect_left(self._peaks, (self._used[content], 0))
        most_private = self._peaks[first_peak][1] if first_peak < len(self._peaks) else 0
        return len(self._held.keys() | since | {content}) + max(most_private, len(self._private))

    def _admit(self, step: int, event: ev.RequestAdmitted | ev.RequestResumed) -> None:
        self._found.num_hit_tokens += event.num_hit_tokens
        self._found.num_queried_tokens += event.num_tokens
        at, request_id, missed = self._last_lookup
        if (at, request_id) == (step, event.request_id):
            self._found.misses += missed
