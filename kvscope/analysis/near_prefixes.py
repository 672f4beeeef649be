"""Prompts that nearly share a prefix: they differ early, and behind the difference they are alike.

A block is found by all tokens before it, so a date at the head, another system prompt or another cache salt makes all
that follows be computed again, though it was computed before. Each prompt is compared, when it is admitted, with those
that ran before it; of prompts that begin alike, with the first. What the cache held then is not asked: the figures say
what would have hit with nothing evicted.

The cost of a prompt does not grow with how many there were: some hundred look-ups of runs of tokens in a table of the
`MAX_KNOWN` prompts that were met last. Knows no words.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvscope import events as ev
from kvscope.engine.scheduling import rules
from kvscope.replay.timeline import Timeline

MAX_DIFFERING = 256
"""Tokens of the part that differs: what is alike behind more than these is not looked for."""

MAX_KNOWN = 256
"""Prompts that others are compared with; the one that was met longest ago makes room."""

MAX_INDEXED = 4_096
"""Tokens of a known prompt among which another one's are looked for."""

MIN_RUN = 8
"""Tokens on end that two prompts have in common at the least, where a block is shorter."""

_MAX_SAME_RUN = 4
"""Known prompts that are looked at for one run of tokens."""

_BYTES = array("I").itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """An admission that would have hit more, had what differs stood behind what is alike."""

    step: int
    request_id: str
    other_id: str
    first_difference: int
    """Place of the first other token in both prompts; where only the salt differs, 0."""
    num_differing: int
    """Tokens of the request that the other one does not have there."""
    num_others_differing: int
    """Tokens that the other one has instead."""
    num_alike: int
    """Tokens on end that both have behind the difference."""
    num_hit_tokens: int
    num_more_tokens: int
    """That would have hit besides."""
    is_salt: bool
    """The tokens are the same; the cache salts are not."""


@dataclass(slots=True)
class NearPrefix:
    """All requests whose prompts are nearly that of another one."""

    other_id: str
    misses: list[NearMiss] = field(default_factory=list)

    @property
    def num_more_tokens(self) -> int:
        return sum(miss.num_more_tokens for miss in self.misses)


def near_prefixes(timeline: Timeline) -> list[NearPrefix]:
    """Returns them, those that lost most first; empty where caching is off."""
    config = timeline.config
    if config is None or not config.settings.get("enable_prefix_caching", True):
        return []
    prompts = _Prompts(timeline, config.block_size)
    arrived: dict[str, ev.RequestArrived] = {}
    found: dict[tuple[str, bool], NearPrefix] = {}
    kinds = (ev.RequestArrived, ev.RequestAdmitted, ev.RequestAborted)
    for step, event in timeline.kind_events(kinds, timeline.first_step, timeline.last_step):
        if isinstance(event, ev.RequestArrived):
            arrived[event.request_id] = event
            continue
        arrival = arrived.pop(getattr(event, "request_id", ""), None)
        if arrival is None or not isinstance(event, ev.RequestAdmitted):
            continue
        miss = prompts.compare(step, arrival, event.num_hit_tokens)
        if miss is not None:
            key = (miss.other_id, miss.is_salt)
            found.setdefault(key, NearPrefix(miss.other_id)).misses.append(miss)
    return sorted(found.values(), key=lambda near: -near.num_more_tokens)


@dataclass(slots=True)
class _Known:
    """A prompt that others are compared with."""

    request_id: str
    tokens: bytes
    cache_salt: str | None
    ready_step: int | None = None
    """When its prompt was computed; not known before somebody asks."""
    runs: list[tuple[str | None, bytes]] = field(default_factory=list)
    """Under which its tokens are indexed."""


class _Prompts:
    """The known prompts, by their runs of tokens: one run for each block."""

    def __init__(self, timeline: Timeline, block_size: int) -> None:
        self._timeline = timeline
        self._block_size = block_size
        self._run = max(block_size, MIN_RUN) * _BYTES
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._places: dict[tuple[str | None, bytes], list[tuple[str, int]]] = {}
        """By adapter and run: whose it is, and where (in bytes)."""

    def compare(self, step: int, arrival: ev.RequestArrived, num_hit_tokens: int) -> NearMiss | None:
        """Returns what a prompt would have hit besides, None where nothing; the prompt is known from now on."""
        mine = array("I", arrival.prompt_token_ids).tobytes()
        best: NearMiss | None = None
        has_kin = False
        for known, place, other_place, shared in self._alike(arrival.lora_name, mine, num_hit_tokens * _BYTES):
            self._known.move_to_end(known.request_id)
            is_kin = known.cache_salt == arrival.cache_salt
            has_kin = has_kin or is_kin
            if not is_kin:
                miss = self._miss(step, arrival, num_hit_tokens, known, 0, 0, 0, shared, is_salt=True)
            elif min(place, other_place) >= shared:
                place, other_place = _begin(mine, place, known.tokens, other_place, shared)
                alike = _num_equal(mine, place, known.tokens, other_place)
                miss = self._miss(step, arrival, num_hit_tokens, known, shared, place, other_place, alike)
            else:
                continue
            if miss is not None and (best is None or miss.num_more_tokens > best.num_more_tokens):
                best = miss
        if not has_kin:
            self._learn(arrival, mine, num_hit_tokens * _BYTES)
        return best

    def _alike(self, lora_name: str | None, mine: bytes, begin: int) -> Iterator[tuple[_Known, int, int, int]]:
        """Yields known prompts with a run of this one's: where it lies in both, how long they begin alike; in bytes.

        Looked for from the end of the hit on. A run inside of what both begin with tells only that they do: behind that
        it is looked for again.
        """
        seen: set[str] = set()
        place, end = begin, begin + MAX_DIFFERING * _BYTES + self._run
        while place <= min(end, len(mine) - self._run):
            beyond = place + _BYTES
            for request_id, other_place in self._places.get((lora_name, mine[place : place + self._run]), ()):
                known = self._known[request_id]
                if request_id in seen:
                    continue
                shared = _num_equal(mine, 0, known.tokens, 0)
                yield known, place, other_place, shared
                if min(place, other_place) >= shared:
                    seen.add(request_id)
                elif place < shared:
                    beyond = max(beyond, shared)
                    end = max(end, shared + MAX_DIFFERING * _BYTES + self._run)
            place = beyond

    def _miss(
        self,
        step: int,
        arrival: ev.RequestArrived,
        num_hit_tokens: int,
        known: _Known,
        shared: int,
        place: int,
        other_place: int,
        alike: int,
        *,
        is_salt: bool = False,
    ) -> NearMiss | None:
        """Returns the miss where it is one; places and lengths are in bytes."""
        size = self._block_size
        num_mine, num_others = (place - shared) // _BYTES, (other_place - shared) // _BYTES
        cap = rules.max_hit_blocks(len(arrival.prompt_token_ids), size)
        num_more = min((shared + alike) // _BYTES // size, cap) * size - num_hit_tokens
        if num_more <= 0 or max(num_mine, num_others) > min(MAX_DIFFERING, alike // _BYTES):
            return None
        if not self._is_ready(known, step):
            return None
        return NearMiss(
            step=step,
            request_id=arrival.request_id,
            other_id=known.request_id,
            first_difference=shared // _BYTES,
            num_differing=num_mine,
            num_others_differing=num_others,
            num_alike=alike // _BYTES,
            num_hit_tokens=num_hit_tokens,
            num_more_tokens=num_more,
            is_salt=is_salt,
        )

    def _is_ready(self, known: _Known, step: int) -> bool:
        """True where its prompt was computed in a step before."""
        if known.ready_step is None:
            row = self._timeline.request(known.request_id)
            known.ready_step = None if row is None else row.first_token_step
        return known.ready_step is not None and known.ready_step < step

    def _learn(self, arrival: ev.RequestArrived, mine: bytes, begin: int) -> None:
        """Knows a prompt from now on, by its runs behind what it hit: what it hit is known already."""
        known = _Known(arrival.request_id, mine, arrival.cache_salt)
        stride = self._block_size * _BYTES
        last = min(len(mine) - self._run, begin + MAX_INDEXED * _BYTES)
        for place in range(begin, last + 1, stride):
            run = arrival.lora_name, mine[place : place + self._run]
            places = self._places.setdefault(run, [])
            if len(places) < _MAX_SAME_RUN:
                places.append((known.request_id, place))
                known.runs.append(run)
        self._known[known.request_id] = known
        if len(self._known) > MAX_KNOWN:
            _, oldest = self._known.popitem(last=False)
            for run in oldest.runs:
                self._places[run] = [place for place in self._places[run] if place[0] != oldest.request_id]
                if not self._places[run]:
                    del self._places[run]


def _begin(mine: bytes, place: int, others: bytes, other_place: int, first: int) -> tuple[int, int]:
    """Returns where a run that both have begins in them, not before `first`; all in bytes."""
    while (
        min(place, other_place) > first and mine[place - _BYTES : place] == others[other_place - _BYTES : other_place]
    ):
        place, other_place = place - _BYTES, other_place - _BYTES
    return place, other_place


def _num_equal(mine: bytes, begin: int, others: bytes, others_begin: int) -> int:
    """Returns the length in bytes of the whole tokens that are equal from two places on."""
    low, high = 0, min(len(mine) - begin, len(others) - others_begin)
    while low < high:
        middle = (low + high + 1) // 2
        if mine[begin + low : begin + middle] == others[others_begin + low : others_begin + middle]:
            low = middle
        else:
            high = middle - 1
    return low // _BYTES * _BYTES
