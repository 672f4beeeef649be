"""What a lab is: a workload, the settings that it varies, the figures that it shows, and the claim that they test.

Requests arrive before given steps and write answers of given lengths, so everything that is counted comes out the same
in every run and with every model; only times differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kvscope.session.labs.figures import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request to be. Ids that begin alike form a group of which figures may be taken."""

    request_id: str
    num_own_tokens: int
    """Of its prompt, after the shared ones; no other prompt has the same."""
    num_output_tokens: int
    num_shared_tokens: int = 0
    """Leading tokens, the same for all requests of a lab."""
    before_step: int = 0


def arrivals(
    name: str,
    num_output_tokens: Sequence[int],
    *,
    num_own_tokens: int,
    before_steps: Sequence[int] = (),
    num_shared_tokens: int = 0,
) -> tuple[Arrival, ...]:
    """Returns requests `name-1`, `name-2`… with these lengths of their answers, all before step 0 by default."""
    steps = before_steps or [0] * len(num_output_tokens)
    return tuple(
        Arrival(
            request_id=f"{name}-{number}",
            num_own_tokens=num_own_tokens,
            num_output_tokens=num_output,
            num_shared_tokens=num_shared_tokens,
            before_step=step,
        )
        for number, (num_output, step) in enumerate(zip(num_output_tokens, steps, strict=True), start=1)
    )


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the workload."""

    name: str
    """Names its row and its recordings."""
    settings: Mapping[str, Any]
    """Over those that all variants of the lab have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a claim says of one figure of two variants."""

    sentence: str
    figure: str
    """Key of the figure."""
    left: str
    right: str
    """Names of variants."""
    relation: Literal["<", "="] = "<"
    """How `left` is to `right`."""

    def holds(self, left: float | None, right: float | None) -> bool:
        """True where both variants have the figure and it is so."""
        if left is None or right is None:
            return False
        return left < right if self.relation == "<" else left == right


@dataclass(frozen=True, slots=True)
class Look:
    """What to press in a replay, and what is to be seen then."""

    keys: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """One claim, and the runs that test it."""

    name: str
    title: str
    claim: str
    """One sentence."""
    source: str
    """The document and section that make the claim."""
    workload: str
    """The arrivals in words."""
    arrivals: tuple[Arrival, ...]
    settings: Mapping[str, Any]
    """Of all variants."""
    variants: tuple[Variant, ...]
    figures: tuple[Figure, ...]
    expectations: tuple[Expectation, ...]
    look_at: str
    """The variant whose recording shows it best."""
    look: tuple[Look, ...]
    notes: tuple[str, ...] = field(default=())
    """What a reader must know to read the figures rightly."""
    num_rounds: int = 3
