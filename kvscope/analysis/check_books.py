"""The books that the invariants are checked against: kept from the events, apart from the reducer that is checked too.

What a block holds is known exactly, not by its hash: `PrefixTree` gives every distinct prefix a number of its own.
Of a request that has ended a few figures are left, so that a run of millions of steps can be checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvscope import events as ev
from kvscope.engine.scheduling import hashing
from kvscope.state import EngineState

PrefixId = int
"""Equal for two blocks if and only if all tokens and extra keys up to their ends are equal."""

NO_PREFIX: PrefixId = 0

_PrefixKey = tuple[PrefixId, tuple[int, ...], tuple[str, ...]]
"""The prefix that is one block shorter, the block's tokens, and the extra keys of a first block."""


class PrefixTree:
    """Numbers distinct chains of blocks, and forgets those that nobody refers to any more.

    A prefix is referred to by the blocks that hold it, by the requests that asked for it, and by longer prefixes. Its
    number comes back only if it was never forgotten meanwhile: so no block may hold a prefix that nobody keeps.
    """

    def __init__(self) -> None:
        self._children: dict[_PrefixKey, PrefixId] = {}
        self._keys: dict[PrefixId, _PrefixKey] = {}
        self._num_references: dict[PrefixId, int] = {}
        self._last_id = NO_PREFIX

    def __len__(self) -> int:
        return len(self._keys)

    def child(self, parent: PrefixId, token_ids: tuple[int, ...], extra: tuple[str, ...]) -> PrefixId:
        """Returns the number of a prefix that is one block longer. It has to be kept."""
        key = (parent, token_ids, extra if parent == NO_PREFIX else ())
        prefix_id = self._children.get(key)
        if prefix_id is None:
            prefix_id = self._last_id = self._last_id + 1
            self._children[key] = prefix_id
            self._keys[prefix_id] = key
            self._num_references[prefix_id] = 0
            if parent != NO_PREFIX:
                self._num_references[parent] += 1
        return prefix_id

    def keep(self, prefix_id: PrefixId) -> None:
        """Counts one that refers to the prefix."""
        self._num_references[prefix_id] += 1

    def let_go(self, prefix_id: PrefixId) -> None:
        """Takes a `keep` back; what nobody refers to is forgotten, and with it what only led there."""
        counts = self._num_references
        while prefix_id != NO_PREFIX:
            counts[prefix_id] -= 1
            if counts[prefix_id]:
                return
            key = self._keys.pop(prefix_id)
            del self._children[key], counts[prefix_id]
            prefix_id = key[0]


@dataclass(slots=True)
class RequestBooks:
    """What the events say of one request."""

    request_id: str
    num_prompt_tokens: int
    extra: tuple[str, ...]
    """Extra keys of its first block."""
    max_tokens: int
    token_ids: list[int]
    """Prompt and everything sampled; empty after the step in which it ended."""
    block_table: list[int] = field(default_factory=list)
    prefix_ids: list[PrefixId] = field(default_factory=list)
    """Of its leading full blocks, as far as they were asked for."""
    block_hashes: list[bytes] = field(default_factory=list)
    num_output_tokens: int = 0
    num_preemptions: int = 0
    first_admitted_step: int | None = None
    first_token_step: int | None = None
    finished_step: int | None = None
    finish_reason: str | None = None
    num_hit_tokens: int = 0
    """Over all its admissions."""
    tokens_digest: int | None = None
    """Tells its tokens from others once they are forgotten."""

    def digest(self) -> int:
        """Returns `tokens_digest` of what it has."""
        return digest_of(self.token_ids) if self.tokens_digest is None else self.tokens_digest


def digest_of(token_ids: Sequence[int]) -> int:
    """Returns a number that tells these tokens from others, within one process."""
    return hash(tuple(token_ids))


@dataclass(slots=True)
class StepBooks:
    """What the step under way did so far."""

    token_budget: int = 0
    num_scheduled_tokens: int = 0
    budget_left: int | None = None
    scheduled: dict[str, int] = field(default_factory=dict)
    num_drafts: dict[str, int] = field(default_factory=dict)
    sampled_ids: set[str] = field(default_factory=set)
    num_discarded: dict[str, int] = field(default_factory=dict)
    """Sampled tokens that came after a request's end: computed, but never its own."""
    preempted_ids: list[str] = field(default_factory=list)
    admitted_ids: list[str] = field(default_factory=list)
    published: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Each block published in this step and not taken back: by whom, and the tokens up to its end."""
    changed_block_ids: set[int] = field(default_factory=set)
    changed_request_ids: set[str] = field(default_factory=set)
    failed: ev.StepFailed | None = None


class Books:
    """The reduced state, and beside it tokens, block tables and the content of every published block."""

    def __init__(self) -> None:
        self.state = EngineState()
        self.requests: dict[str, RequestBooks] = {}
        """All that ever arrived, in that order."""
        self.step = StepBooks()
        self.step_number = -1
        self.num_holders: Counter[int] = Counter()
        """For each block the block tables that hold it."""
        self.contents: dict[int, PrefixId] = {}
        """What each published block was computed from."""
        self._tree = PrefixTree()

    @property
    def block_size(self) -> int:
        """Tokens a block; 1 before the settings are known."""
        return self.state.config.block_size if self.state.config is not None else 1

    def begin_step(self, step: int) -> None:
        """Forgets what belonged to the step before, and requests that had ended in it."""
        for request_id in self.state.ended_ids:
            self._forget_tokens(self.requests[request_id])
        self.step_number = step
        self.step = StepBooks()
        self.state.begin_step(step)

    def _forget_tokens(self, request: RequestBooks) -> None:
        if request.tokens_digest is None:
            request.tokens_digest = digest_of(request.token_ids)
            for prefix_id in request.prefix_ids:
                self._tree.let_go(prefix_id)
            request.token_ids, request.prefix_ids, request.block_hashes = [], [], []

    def prefix_ids(self, request_id: str, num_blocks: int) -> list[PrefixId]:
        """Returns the content of the request's first blocks, fewer where its tokens do not fill them."""
        request, size = self.requests[request_id], self.block_size
        for index in range(len(request.prefix_ids), min(num_blocks, len(request.token_ids) // size)):
            token_ids = tuple(request.token_ids[index * size : (index + 1) * size])
            parent = request.prefix_ids[-1] if index else NO_PREFIX
            prefix_id = self._tree.child(parent, token_ids, request.extra)
            self._tree.keep(prefix_id)
            request.prefix_ids.append(prefix_id)
        return request.prefix_ids[:num_blocks]

    def block_hashes(self, request_id: str, num_blocks: int) -> list[bytes]:
        """Returns the hashes that the request's first blocks must have, fewer where its tokens do not fill them."""
        request, size = self.requests[request_id], self.block_size
        num_blocks = min(num_blocks, len(request.token_ids) // size)
        if len(request.block_hashes) < num_blocks:
            hashing.extend_block_hashes(request.block_hashes, request.token_ids, num_blocks, size, request.extra)
        return request.block_hashes[:num_blocks]

    def apply(self, event: ev.Event) -> None:
        """Enters an event. Raises `StateError` where it contradicts the state."""
        self.state.apply(event)
        step = self.step
        match event:
            case ev.RequestArrived():
                self.requests[event.request_id] = RequestBooks(
                    request_id=event.request_id,
                    num_prompt_tokens=len(event.prompt_token_ids),
                    extra=hashing.extra_keys(event.cache_salt, event.lora_name),
                    max_tokens=event.max_tokens,
                    token_ids=list(event.prompt_token_ids),
                )
            case ev.StepStarted():
                step.token_budget = event.token_budget
            case ev.RequestAdmitted() | ev.RequestResumed():
                step.admitted_ids.append(event.request_id)
                request = self.requests[event.request_id]
                request.num_hit_tokens += event.num_hit_tokens
                if isinstance(event, ev.RequestAdmitted):
                    request.first_admitted_step = self.step_number
            case ev.RequestPreempted():
                step.preempted_ids.append(event.request_id)
                self.requests[event.request_id].num_preemptions += 1
            case ev.BlockAllocated() | ev.BlockTouched():
                self._hold(event.request_id, event.block_ids)
            case ev.BlockReleased():
                self._release(event.request_id)
            case ev.BlockCached():
                self._publish(event)
            case ev.BlockEvicted() | ev.BlockUncached():
                for block_id in event.block_ids:
                    self._tree.let_go(self.contents.pop(block_id, NO_PREFIX))
                    step.published.pop(block_id, None)
                step.changed_block_ids.update(event.block_ids)
            case ev.AdmissionEnded():
                step.budget_left = event.token_budget_left
            case ev.TokensScheduled():
                step.scheduled = dict(zip(event.request_ids, event.num_tokens, strict=True))
                step.num_scheduled_tokens = sum(event.num_tokens)
                step.num_drafts = {key: len(drafts) for key, drafts in event.draft_token_ids.items()}
            case ev.DraftsVerified():
                step.num_discarded[event.request_id] = event.num_discarded
            case ev.TokensSampled():
                self._sample(event)
            case ev.RequestFinished():
                self._end(event.request_id, event.reason)
            case ev.RequestAborted():
                self._end(event.request_id, "abort")
            case ev.StepFailed():
                step.failed = event
            case _:
                pass

    def _hold(self, request_id: str, block_ids: Sequence[int]) -> None:
        self.requests[request_id].block_table.extend(block_ids)
        self.num_holders.update(block_ids)
        self.step.changed_block_ids.update(block_ids)
        self.step.changed_request_ids.add(request_id)

    def _release(self, request_id: str) -> None:
        table = self.requests[request_id].block_table
        self.num_holders.subtract(table)
        self.step.changed_block_ids.update(table)
        self.step.changed_request_ids.add(request_id)
        table.clear()

    def _publish(self, event: ev.BlockCached) -> None:
        end = event.first_index + len(event.block_ids)
        contents = self.prefix_ids(event.request_id, end)[event.first_index :]
        for index, (block_id, content) in enumerate(zip(event.block_ids, contents, strict=False), event.first_index):
            self._tree.keep(content)
            self._tree.let_go(self.contents.get(block_id, NO_PREFIX))
            self.contents[block_id] = content
            self.step.published[block_id] = (event.request_id, (index + 1) * self.block_size)
        self.step.changed_block_ids.update(event.block_ids)

    def _sample(self, event: ev.TokensSampled) -> None:
        requests, step_number = self.requests, self.step_number
        self.step.sampled_ids.update(event.request_ids)
        counts = event.num_tokens if event.num_tokens is not None else (1,) * len(event.request_ids)
        start = 0
        for request_id, count in zip(event.request_ids, counts, strict=True):
            request = requests[request_id]
            request.token_ids += event.token_ids[start : start + count]
            request.num_output_tokens += count
            if count and request.first_token_step is None:
                request.first_token_step = step_number
            start += count

    def _end(self, request_id: str, reason: str) -> None:
        request = self.requests[request_id]
        request.finished_step = self.step_number
        request.finish_reason = reason
        self.step.changed_request_ids.add(request_id)
