"""How far a search is that works in small pieces: it says so after each, and can be left there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Searched:
    """The search is at this step."""

    step: int
