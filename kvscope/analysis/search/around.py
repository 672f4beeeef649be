"""A search from a step on in both directions, in turns: what lies near is found first, however long the recording is.

What was looked through is one range of steps; with it a search that was left can be taken up again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvscope.analysis.search import run
from kvscope.analysis.search.hit import Hit
from kvscope.analysis.search.query import Query
from kvscope.replay.timeline import Timeline

LEAD_STEPS = 200
"""Steps before a stretch that are read with it: words may begin in them. They are told where their own turn comes."""

_FIRST_TURN, _LONGEST_TURN = 800, 12_800
"""Steps that are searched in one direction before it is the other one's turn, at the beginning and at last."""


@dataclass(frozen=True, slots=True)
class Reached:
    """All steps from the first to the last one are searched; none where the first lies behind the last."""

    first_step: int
    last_step: int

    @property
    def num_steps(self) -> int:
        return self.last_step - self.first_step + 1


def search_around(
    timeline: Timeline, query: Query, first_step: int, last_step: int, reached: Reached
) -> Iterator[Hit | Reached]:
    """Yields hits, and how far both directions are. `Reached(s, s - 1)` begins at step s, another one goes on there."""
    low, high = reached.first_step, reached.last_step
    turn = _FIRST_TURN
    onward = run.Stretches(timeline, query)
    is_onward_begun = False
    while low > first_step or high < last_step:
        end = min(high + turn, last_step)
        if not is_onward_begun:
            is_onward_begun = True
            onward.pass_over(max(high + 1 - LEAD_STEPS, first_step), high)
        for begin in range(high + 1, end + 1, run.STRETCH_STEPS):
            high = min(begin + run.STRETCH_STEPS - 1, end)
            yield from onward.hits(begin, high)
            yield Reached(low, high)
        begin = max(low - turn, first_step)
        if begin < low:
            back = run.Stretches(timeline, query)
            back.pass_over(max(begin - LEAD_STEPS, first_step), begin - 1)
            for start in range(begin, low, run.STRETCH_STEPS):
                yield from back.hits(start, min(start + run.STRETCH_STEPS, low) - 1)
                yield Reached(low, high)  # not further yet: what lies between is still to be searched
            low = begin
            yield Reached(low, high)
        turn = min(2 * turn, _LONGEST_TURN)
