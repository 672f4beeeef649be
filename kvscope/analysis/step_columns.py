"""The steps of a run as figures, in columns: a million steps are 13 arrays of numbers."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass(slots=True)
class StepColumns:
    """One value a step, in columns. `first_step` is the step of index 0."""

    first_step: int = 0
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    """When the step's tokens existed."""
    schedule_ns: array[int] = field(default_factory=lambda: array("q"))
    forward_ns: array[int] = field(default_factory=lambda: array("q"))
    sample_ns: array[int] = field(default_factory=lambda: array("q"))
    update_ns: array[int] = field(default_factory=lambda: array("q"))
    record_ns: array[int] = field(default_factory=lambda: array("q"))
    """As measured in the step: what handing over the step before took."""
    token_budget: array[int] = field(default_factory=lambda: array("q"))
    num_prefill_tokens: array[int] = field(default_factory=lambda: array("q"))
    """Scheduled tokens that are not the next token of a request whose other tokens are all computed."""
    num_decode_tokens: array[int] = field(default_factory=lambda: array("q"))
    """The others, with their drafts."""
    num_token_pairs: array[int] = field(default_factory=lambda: array("q"))
    """Context read: for each scheduled token, the tokens that it attends to."""
    num_scheduled_requests: array[int] = field(default_factory=lambda: array("q"))
    num_waiting: array[int] = field(default_factory=lambda: array("q"))
    """After the admissions of the step."""

    def __len__(self) -> int:
        return len(self.start_ns)

    def append(self, values: StepValues) -> None:
        """Adds the step after the last."""
        for name in _COLUMNS:
            getattr(self, name).append(getattr(values, name))


@dataclass(slots=True)
class StepValues:
    """One step's value of each column."""

    start_ns: int = 0
    end_ns: int = 0
    schedule_ns: int = 0
    forward_ns: int = 0
    sample_ns: int = 0
    update_ns: int = 0
    record_ns: int = 0
    token_budget: int = 0
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    num_token_pairs: int = 0
    num_scheduled_requests: int = 0
    num_waiting: int = 0


_COLUMNS = tuple(StepValues.__slots__)
