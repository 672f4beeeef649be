"""What the prefix cache held when a request was looked up in it, followed from the first step on.

Two passes over the recording. The first looks at what arrived: how many leading tokens every other request shares with
the one that is asked about. The second at what became of it: who published which block of shared tokens, what was lost
and for whom. What was sampled is read only while it may be shared too. Content is compared by tokens, not by hashes, so
it holds for recordings whose hashes are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kvscope import events as ev
from kvscope.replay.timeline import Timeline

_KINDS: tuple[type[ev.Event], ...] = (
    ev.RequestAdmitted,
    ev.RequestFinished,
    ev.RequestAborted,
    ev.PrefixLookedUp,
    ev.BlockCached,
    ev.BlockEvicted,
    ev.BlockUncached,
)


@dataclass(slots=True)
class Publication:
    """A block of some request's tokens in the prefix cache, from its publication until it is lost."""

    origin_id: str
    index: int
    block_id: int
    published_step: int
    lost_step: int | None = None
    lost_for: str | None = None
    """Who took the block; None where it was taken back."""
    lost_how: Literal["evicted", "taken_back"] | None = None


@dataclass(slots=True)
class Relative:
    """Another request (or the request itself), as far as its tokens are those of the request."""

    request_id: str
    arrival_step: int
    cache_salt: str | None
    lora_name: str | None
    num_shared: int
    """Leading tokens that are equal, of those that it has so far."""
    num_known: int
    """Tokens that it has so far; followed only while it `is_prefix`."""
    has_run: bool = False
    """It was admitted at least once: only then can anything of it be cached."""
    has_ended: bool = False

    @property
    def is_prefix(self) -> bool:
        """Every token that it has is shared: what it samples next may be shared too."""
        return self.num_shared == self.num_known


@dataclass(slots=True)
class CacheHistory:
    """Follows the cache event by event."""

    request_id: str
    token_ids: Sequence[int]
    """The request's tokens as far as they ever come."""
    block_size: int
    relatives: dict[str, Relative] = field(default_factory=dict)
    """By arrival, the request itself included; what arrives later stands there from the start, and has not run."""
    publications: dict[tuple[str, int], list[Publication]] = field(default_factory=dict)
    """By whose tokens and index, of blocks whose tokens are the request's; the latest last."""
    current: dict[int, Publication] = field(default_factory=dict)
    """By block, of those of them that are cached."""
    duplicates: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Blocks that the request published though another had their content: step, index, block, that other block."""
    _prefixes: set[str] = field(default_factory=set)
    """Who `is_prefix`."""

    def arrive(self, step: int, event: ev.RequestArrived) -> None:
        """Enters another request, or the request itself."""
        prompt = event.prompt_token_ids
        relative = Relative(
            request_id=event.request_id,
            arrival_step=step,
            cache_salt=event.cache_salt,
            lora_name=event.lora_name,
            num_shared=num_common(prompt, self.token_ids),
            num_known=len(prompt),
        )
        self.relatives[event.request_id] = relative
        if relative.is_prefix:
            self._prefixes.add(event.request_id)

    @property
    def sampling_from(self) -> int | None:
        """The first step from which on what is sampled may be shared; None where nobody is a prefix."""
        return min((self.relatives[request_id].arrival_step for request_id in self._prefixes), default=None)

    def follow(self, step: int, event: ev.Event) -> None:
        """Enters one event."""
        match event:
            case ev.TokensSampled():
                self._sample(event)
            case ev.RequestAdmitted():
                self.relatives[event.request_id].has_run = True
            case ev.RequestFinished() | ev.RequestAborted():
                self.relatives[event.request_id].has_ended = True
            case ev.BlockCached():
                self._publish(step, event)
            case ev.BlockEvicted():
                for block_id in event.block_ids:
                    self._lose(step, block_id, event.request_id, "evicted")
            case ev.BlockUncached():
                for block_id in event.block_ids:
                    self._lose(step, block_id, None, "taken_back")
            case _:
                pass

    def _sample(self, event: ev.TokensSampled) -> None:
        if self._prefixes.isdisjoint(event.request_ids):
            return
        start = 0
        for index, request_id in enumerate(event.request_ids):
            count = 1 if event.num_tokens is None else event.num_tokens[index]
            if request_id in self._prefixes:
                relative = self.relatives[request_id]
                rest = self.token_ids[relative.num_shared : relative.num_shared + count]
                relative.num_shared += num_common(event.token_ids[start : start + count], rest)
                relative.num_known += count
                if not relative.is_prefix:
                    self._prefixes.remove(request_id)
            start += count

    def _publish(self, step: int, event: ev.BlockCached) -> None:
        num_shared = self.relatives[event.request_id].num_shared // self.block_size
        for index, block_id in enumerate(event.block_ids[: max(num_shared - event.first_index, 0)], event.first_index):
            publication = Publication(event.request_id, index, block_id, step)
            self.publications.setdefault((event.request_id, index), []).append(publication)
            self.current[block_id] = publication
        if event.request_id == self.request_id and event.duplicate_of:
            for index, (block_id, first_id) in enumerate(
                zip(event.block_ids, event.duplicate_of, strict=True), event.first_index
            ):
                if first_id:
                    self.duplicates.append((step, index, block_id, first_id))

    def _lose(self, step: int, block_id: int, taker_id: str | None, how: Literal["evicted", "taken_back"]) -> None:
        publication = self.current.pop(block_id, None)
        if publication is not None:
            publication.lost_step, publication.lost_for, publication.lost_how = step, taker_id, how

    def sharing(self, num_tokens: int) -> list[Relative]:
        """Returns those that ran and share at least so many leading tokens, by arrival, the request itself included."""
        return [r for r in self.relatives.values() if r.has_run and r.num_shared >= num_tokens]

    def published(self, relatives: Sequence[Relative], index: int) -> Publication | None:
        """Returns a cached block of this index that one of them published, the first published."""
        found = [
            publication
            for relative in relatives
            for publication in self.publications.get((relative.request_id, index), ())
            if publication.lost_step is None
        ]
        return min(found, key=lambda publication: publication.published_step, default=None)

    def last_lost(self, relatives: Sequence[Relative], index: int) -> Publication | None:
        """Returns the block of this index that was lost last, of those that one of them had published."""
        found = [
            publication
            for relative in relatives
            for publication in self.publications.get((relative.request_id, index), ())
            if publication.lost_step is not None
        ]
        return max(found, key=lambda publication: publication.lost_step or 0, default=None)


def follow_lookups(
    timeline: Timeline, history: CacheHistory, steps: Sequence[int], last_step: int
) -> Iterator[tuple[int, ev.PrefixLookedUp]]:
    """Yields the request's lookups in the given steps; at each the history is that of the moment of the lookup.

    To be read to its end, up to `last_step`: what is published after the last lookup is followed too.
    """
    wanted = set(steps)
    for step, events in timeline.select_events((ev.RequestArrived,), timeline.first_step, last_step):
        for event in events:
            if isinstance(event, ev.RequestArrived):
                history.arrive(step, event)
    sampling = last_step + 1 if history.sampling_from is None else history.sampling_from
    passes = ((_KINDS, timeline.first_step, sampling - 1), ((*_KINDS, ev.TokensSampled), sampling, last_step))
    for kinds, first, last in passes:
        for step, events in timeline.select_events(kinds, first, last):
            for event in events:
                if isinstance(event, ev.PrefixLookedUp) and event.request_id == history.request_id and step in wanted:
                    yield step, event
                history.follow(step, event)


def num_common(left: Sequence[int], right: Sequence[int]) -> int:
    """Returns how many leading tokens are equal."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
