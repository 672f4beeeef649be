"""What a screen or an analysis may ask of a recording, closed or growing: the seam between storage and readers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvscope.events import BlockCached, BlockEvicted, EngineConfigured, Event
from kvscope.state import EngineState


@dataclass(frozen=True, slots=True)
class Moment:
    """One step: its events, and the state that they left. `state` is the reader's own and valid until its next `at`:
    read, never change, copy what must outlive it."""

    step: int
    state: EngineState
    events: Sequence[Event]


class Moments(Protocol):
    """Reads states with a cursor of its own."""

    def at(self, step: int) -> Moment:
        """Returns the step and the state after it, valid until the next call. Raises `RecordingError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """One column of the timeline: the figures of a step, or of several steps, each figure its maximum over them.

    The counts of happenings (`num_preemptions` … `num_failed`) are sums.
    """

    first_step: int
    num_steps: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_draft_tokens: int
    token_budget: int
    num_live_blocks: int
    num_cached_blocks: int
    """Free but hittable."""
    num_running: int
    num_waiting: int
    step_ns: int
    num_preemptions: int = 0
    num_evicted_blocks: int = 0
    num_hits: int = 0
    num_finished: int = 0
    num_stalled: int = 0
    """Steps that scheduled nothing while something waited."""
    num_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One row of the table `requests`: what a recording knows of a request as a whole, up to its last step."""

    request_id: str
    prompt: str | None
    num_prompt_tokens: int
    max_tokens: int
    priority: int
    arrival_step: int
    arrival_time: float
    cache_salt: str | None
    lora_name: str | None
    sampling: str
    """JSON of the sampling settings that differ from their defaults."""
    num_output_tokens: int
    num_hit_tokens: int
    """Of all its admissions together, own tokens after a preemption included."""
    num_preemptions: int
    first_admitted_step: int | None
    first_token_step: int | None
    finished_step: int | None
    finish_reason: str | None


class Timeline(Protocol):
    """A recording to move in. Steps are numbered from `first_step` to `last_step` without gaps."""

    path: Path

    @property
    def config(self) -> EngineConfigured | None:
        """None while the engine has not configured itself yet."""
        ...

    @property
    def first_step(self) -> int: ...

    @property
    def last_step(self) -> int:
        """-1 while there is no step."""
        ...

    @property
    def is_growing(self) -> bool:
        """False once the writer has closed the file."""
        ...

    def refresh(self) -> bool:
        """Looks for new steps in the file; True where there are any (or where it was closed)."""
        ...

    def at(self, step: int) -> Moment:
        """Returns the step and the state after it. Raises `RecordingError` (naming the range) for a step outside."""
        ...

    def prepare(self, step: int) -> None:
        """Makes a later `at` of a step behind the present one quick, and of those shortly before it.

        For moments in which there is nothing else to do: it takes as long as that look would have taken, and next to
        nothing where all is ready. The moment of the last `at` stays valid. Steps outside and damage are passed over.
        """
        ...

    def events(self, first_step: int, last_step: int) -> Iterator[tuple[int, Sequence[Event]]]:
        """Yields `(step, events)` over the steps, both ends included."""
        ...

    def select_events(
        self, kinds: Collection[type[Event]], first_step: int, last_step: int
    ) -> Iterator[tuple[int, Sequence[Event]]]:
        """As `events`, of some kinds only; every step comes, also where it has none of them. Does not miss lost events.

        Much quicker than `events` where blocks are left out.
        """
        ...

    def request_events(self, request_id: str, first_step: int, last_step: int) -> Iterator[tuple[int, Event]]:
        """Yields `(step, event)` in order: the events about one request, and the preemptions for its benefit.

        Without `TokensScheduled` and `TokensSampled`, which every step of it has. Quick for a request of many steps.
        """
        ...

    def block_events(self, block_id: int, first_step: int, last_step: int) -> Iterator[tuple[int, Event]]:
        """Yields `(step, event)` in order: the allocations, hits, releases, … of one block."""
        ...

    def hash_events(
        self, digits: str, first_step: int, last_step: int
    ) -> Iterator[tuple[int, BlockCached | BlockEvicted]]:
        """Yields `(step, event)` in order: publications and evictions of hashes that begin with the digits."""
        ...

    def kind_events(
        self, kinds: Collection[type[Event]], first_step: int, last_step: int
    ) -> Iterator[tuple[int, Event]]:
        """Yields `(step, event)` in order: as `select_events`, but only the steps that have some."""
        ...

    def steps_sampling(self, token_id: int, first_step: int, last_step: int) -> list[tuple[int, list[int]]]:
        """Returns the steps in which a token was generated, with its places among the step's sampled tokens."""
        ...

    def damaged_checkpoints(self) -> Iterator[tuple[int, str]]:
        """Yields `(step, what is wrong)` of checkpoints that cannot be read: seeks pass over them, and take longer."""
        ...

    def moments(self) -> Moments:
        """Returns another reader of states, which leaves the moment of the last `at` valid."""
        ...

    def summaries(self, first_step: int, num_columns: int, steps_per_column: int) -> list[StepSummary]:
        """Returns timeline columns from `first_step` on; fewer where the recording ends before.

        `steps_per_column` is 1, 2 or 5 times a power of ten. Columns begin at its multiples: the first one is that
        which holds `first_step`.
        """
        ...

    def request(self, request_id: str) -> RequestRow | None:
        """Returns the request's row, None where it never arrived."""
        ...

    def request_ids(self) -> list[str]:
        """All requests, by arrival."""
        ...

    def token_ids(self, request_id: str, step: int) -> list[int]:
        """Returns prompt and output of the request as they stood after the step."""
        ...

    def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        """Returns what the tokens stand for; None where the recording has no text for one (scripted runs)."""
        ...

    def close(self) -> None: ...
