"""What conditions look at: a step, its events, and what it left, wherever that is kept.

A reader has it as a state folded from events (`StateLook`), the engine's process as the scheduler's own books.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvscope.events import Event
from kvscope.replay.timeline import Moment
from kvscope.state import EngineState, RequestState


class RequestLook(Protocol):
    """A request after the step. Names and meanings as in `RequestState`."""

    @property
    def request_id(self) -> str: ...
    @property
    def arrival_step(self) -> int: ...
    @property
    def waiting_since_step(self) -> int: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_output_tokens(self) -> int: ...
    @property
    def num_computed_tokens(self) -> int: ...
    @property
    def num_prefill_tokens(self) -> int: ...
    @property
    def num_hit_tokens(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def status_name(self) -> str: ...


class StepLook(Protocol):
    """A step and what it left."""

    @property
    def step(self) -> int: ...
    @property
    def events(self) -> Sequence[Event]: ...
    @property
    def num_free_blocks(self) -> int: ...
    @property
    def num_live_blocks(self) -> int: ...
    @property
    def num_cached_free_blocks(self) -> int: ...
    @property
    def num_shared_blocks(self) -> int: ...
    @property
    def num_running(self) -> int: ...
    @property
    def num_waiting(self) -> int: ...

    def requests(self) -> Iterable[RequestLook]:
        """Returns those that live after the step, and those that ended in it."""
        ...

    def request(self, request_id: str) -> RequestLook | None:
        """Returns one of them."""
        ...


@dataclass(frozen=True, slots=True)
class StateRequestLook:
    """A request of a folded state."""

    state: RequestState

    @property
    def request_id(self) -> str:
        return self.state.request_id

    @property
    def arrival_step(self) -> int:
        return self.state.arrival_step

    @property
    def waiting_since_step(self) -> int:
        return self.state.waiting_since_step

    @property
    def num_prompt_tokens(self) -> int:
        return self.state.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        return self.state.num_output_tokens

    @property
    def num_computed_tokens(self) -> int:
        return self.state.num_computed_tokens

    @property
    def num_prefill_tokens(self) -> int:
        return self.state.num_prefill_tokens

    @property
    def num_hit_tokens(self) -> int:
        return self.state.num_hit_tokens

    @property
    def max_tokens(self) -> int:
        return self.state.max_tokens

    @property
    def num_preemptions(self) -> int:
        return self.state.num_preemptions

    @property
    def priority(self) -> int:
        return self.state.priority

    @property
    def num_blocks(self) -> int:
        return len(self.state.block_ids)

    @property
    def status_name(self) -> str:
        return self.state.status


@dataclass(frozen=True, slots=True)
class StateLook:
    """A step of a recording."""

    step: int
    state: EngineState
    events: Sequence[Event]

    @classmethod
    def of(cls, moment: Moment) -> StateLook:
        return cls(moment.step, moment.state, moment.events)

    @property
    def num_free_blocks(self) -> int:
        return self.state.num_free_blocks

    @property
    def num_live_blocks(self) -> int:
        return self.state.num_live_blocks

    @property
    def num_cached_free_blocks(self) -> int:
        return self.state.num_cached_free_blocks

    @property
    def num_shared_blocks(self) -> int:
        return self.state.num_shared_blocks

    @property
    def num_running(self) -> int:
        return len(self.state.running)

    @property
    def num_waiting(self) -> int:
        return len(self.state.waiting)

    def requests(self) -> Iterator[RequestLook]:
        return map(StateRequestLook, self.state.requests.values())

    def request(self, request_id: str) -> RequestLook | None:
        found = self.state.requests.get(request_id)
        return None if found is None else StateRequestLook(found)
