"""Two steps of one recording side by side: figures, requests, block tables and pool, and what happened in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from kvscope import events as ev
from kvscope.analysis.journey import Between, Journey
from kvscope.analysis.spans import Sentence
from kvscope.errors import UsageError
from kvscope.replay.timeline import Moment, Timeline


class BlockDifference(IntEnum):
    """What became of a block from step A to step B."""

    NULL = 0
    FREE = 1
    """Free in both."""
    SAME = 2
    """Held by the same requests in both."""
    TAKEN = 3
    GIVEN_BACK = 4
    OTHER_OWNER = 5


BLOCK_GLYPHS = {
    BlockDifference.NULL: "·",
    BlockDifference.FREE: " ",
    BlockDifference.SAME: "■",
    BlockDifference.TAKEN: "+",
    BlockDifference.GIVEN_BACK: "−",
    BlockDifference.OTHER_OWNER: "~",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FigurePair:
    """A figure of both steps; None where a step has none."""

    name: str
    a: float | None
    b: float | None

    @property
    def differs(self) -> bool:
        return self.a != self.b


_ENDED = "ended"
"""Of a request that is gone in B, while nobody has read how it ended."""

RequestChange = Literal["preempted", "changed", "went_on", "same"]
"""`preempted` in between; status or queue `changed`; it `went_on` in the same status; nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDifference:
    """One request that lives in either step, or ended in B."""

    request_id: str
    change: RequestChange
    status_a: str
    """In lower case; "not arrived" before it came."""
    status_b: str
    num_blocks: tuple[int, int]
    num_computed_tokens: tuple[int, int]
    num_tokens: tuple[int, int]
    queue_position: tuple[int | None, int | None]
    num_preemptions: int
    """In between."""
    num_steps_run: int
    """Steps in between (B included) that gave it tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDifference:
    """Step A and step B of one recording; A comes first."""

    step_a: int
    step_b: int
    between: Between | None
    """None where the steps in between have not been read yet: requests then lack preemptions and steps run."""
    figures: tuple[FigurePair, ...]
    """Those that differ first."""
    requests: tuple[RequestDifference, ...]
    """Preempted ones first, then those that changed, then the others, by arrival each."""
    blocks: bytes
    """`BlockDifference` of each block, by id."""
    num_blocks: dict[BlockDifference, int]
    num_published: tuple[int, int, int]
    """Cached hashes: in both steps on the same block and request, only in A, only in B."""
    happenings: tuple[tuple[int, Sentence], ...]
    """Steps and what was decided in them about requests, the rarest kind first."""


def step_difference(
    timeline: Timeline, step_a: int, step_b: int, early: Callable[[StepDifference], None] | None = None
) -> StepDifference:
    """Compares two steps, the earlier one as A. Moves the timeline. Raises `RecordingError` for a step outside.

    `early` is told what the two states say by themselves: what lies between them may take long to read.
    """
    step_a, step_b = sorted((step_a, step_b))
    if step_a == step_b:
        raise UsageError(f"--steps {step_a} {step_b}: name two different steps")
    a = _Snapshot(timeline.at(step_a))
    b = _Snapshot(timeline.at(step_b))
    blocks = _blocks(a, b)
    if early is not None:
        early(_difference(a, b, blocks, None))
    return _difference(a, b, blocks, Journey(timeline, step_a, step_b))


def _difference(a: _Snapshot, b: _Snapshot, blocks: bytes, journey: Journey | None) -> StepDifference:
    counts = Counter(blocks)
    return StepDifference(
        step_a=a.step,
        step_b=b.step,
        between=None if journey is None else journey.between(b.time_ns - a.time_ns if b.time_ns else None),
        figures=_figures(a, b),
        requests=_requests(a, b, journey),
        blocks=blocks,
        num_blocks={change: counts[change] for change in BlockDifference},
        num_published=(
            len(a.published & b.published),
            len(a.published - b.published),
            len(b.published - a.published),
        ),
        happenings=() if journey is None else journey.happenings(),
    )


@dataclass(slots=True)
class _RequestStanding:
    status: str
    num_blocks: int
    num_computed_tokens: int
    num_tokens: int
    queue_position: int | None


class _Snapshot:
    """What is kept of a moment: its state is gone when the timeline moves."""

    def __init__(self, moment: Moment) -> None:
        state, events = moment.state, moment.events
        self.step = moment.step
        started = next((event for event in events if isinstance(event, ev.StepStarted)), None)
        finished = next((event for event in events if isinstance(event, ev.StepFinished)), None)
        self.time_ns = started.time_ns if started is not None else 0
        positions = {request_id: position for position, request_id in enumerate(state.waiting)}
        self.requests = {
            request_id: _RequestStanding(
                request.status.lower(),
                len(request.block_ids),
                request.num_computed_tokens,
                request.num_tokens,
                positions.get(request_id),
            )
            for request_id, request in state.requests.items()
        }
        holders: list[list[str]] = [[] for _ in state.ref_cnts]
        for request_id, request in state.requests.items():
            for block_id in request.block_ids:
                holders[block_id].append(request_id)
        self.holders = [tuple(sorted(names)) for names in holders]
        self.published = {(block_id, *origin) for block_id, origin in state.cached_from.items()}
        tokens = state.step_tokens
        self.figures: dict[str, float | None] = {
            "live blocks": state.num_live_blocks,
            "shared blocks": state.num_shared_blocks,
            "cached free blocks": state.num_cached_free_blocks,
            "free blocks": state.num_free_blocks - state.num_cached_free_blocks,
            "running": len(state.running),
            "waiting": len(state.waiting),
            "tokens in step": tokens.total,
            "prefill tokens": tokens.prefill,
            "decode tokens": tokens.decode,
            "draft tokens": tokens.draft,
            "token budget": state.token_budget,
        }
        if finished is not None and finished.forward_ns:
            self.figures["forward, ms"] = round(finished.forward_ns / 1e6, 1)


def _figures(a: _Snapshot, b: _Snapshot) -> tuple[FigurePair, ...]:
    names = dict.fromkeys([*a.figures, *b.figures])
    pairs = [FigurePair(name=name, a=a.figures.get(name), b=b.figures.get(name)) for name in names]
    return tuple(sorted(pairs, key=lambda pair: not pair.differs))


def _requests(a: _Snapshot, b: _Snapshot, journey: Journey | None) -> tuple[RequestDifference, ...]:
    found = [
        _request(request_id, a.requests.get(request_id), b.requests.get(request_id), journey)
        for request_id in dict.fromkeys([*a.requests, *b.requests])
        if request_id in b.requests or a.requests[request_id].status not in ("finished", "aborted")
    ]
    order: dict[RequestChange, int] = {"preempted": 0, "changed": 1, "went_on": 2, "same": 3}
    return tuple(sorted(found, key=lambda request: order[request.change]))


def _request(
    request_id: str, one: _RequestStanding | None, other: _RequestStanding | None, journey: Journey | None
) -> RequestDifference:
    before = one or _RequestStanding("not arrived", 0, 0, 0, None)
    ended = _ENDED if journey is None else journey.ended.get(request_id, before.status)
    after = other or _RequestStanding(ended, 0, 0, before.num_tokens, None)
    num_preemptions = 0 if journey is None else journey.preempted[request_id]
    change: RequestChange = "same"
    if num_preemptions:
        change = "preempted"
    elif before.status != after.status:
        change = "changed"
    elif before != after:
        change = "went_on"
    return RequestDifference(
        request_id=request_id,
        change=change,
        status_a=before.status,
        status_b=after.status,
        num_blocks=(before.num_blocks, after.num_blocks),
        num_computed_tokens=(before.num_computed_tokens, after.num_computed_tokens),
        num_tokens=(before.num_tokens, after.num_tokens),
        queue_position=(before.queue_position, after.queue_position),
        num_preemptions=num_preemptions,
        num_steps_run=0 if journey is None else journey.ran[request_id],
    )


def _blocks(a: _Snapshot, b: _Snapshot) -> bytes:
    changes = bytearray([BlockDifference.NULL])
    for before, after in zip(a.holders[1:], b.holders[1:], strict=True):
        if before == after:
            changes.append(BlockDifference.SAME if before else BlockDifference.FREE)
        elif not before:
            changes.append(BlockDifference.TAKEN)
        elif not after:
            changes.append(BlockDifference.GIVEN_BACK)
        else:
            changes.append(BlockDifference.OTHER_OWNER)
    return bytes(changes)
