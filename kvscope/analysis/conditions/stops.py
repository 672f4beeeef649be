"""Where a recording stops at a condition, forwards or backwards, in small pieces that can be left at any time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvscope.analysis.conditions.bounds import can_hold
from kvscope.analysis.conditions.evaluate import NOTHING, Matched, matches
from kvscope.analysis.conditions.expression import Condition
from kvscope.analysis.conditions.look import StateLook
from kvscope.analysis.searched import Searched
from kvscope.replay.timeline import StepSummary, Timeline

PIECE_STEPS = 1_000
"""Steps whose figures are read at once. Pieces in which nothing can hold are passed over by the piece's figures."""

PIECES_A_LOOK = 200
STEPS_A_SLICE = 16
"""Steps that are looked at before the search says how far it is: some milliseconds of work."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A step to stop at."""

    step: int
    condition: Condition
    request_ids: tuple[str, ...]
    """For whom it holds, of a condition on requests."""


class StopSearch:
    """Finds the stops of one condition in a recording."""

    def __init__(self, timeline: Timeline, condition: Condition) -> None:
        self._timeline = timeline
        self._condition = condition
        self._moments = timeline.moments()
        self._last: tuple[int, Matched] | None = None
        config = timeline.config
        self._num_usable_blocks = 0 if config is None else max(config.num_gpu_blocks - 1, 0)

    def forwards(self, first_step: int, last_step: int) -> Iterator[Searched | Stop]:
        """Yields the stops from `first_step` to `last_step` in order, and after each piece of work how far it is."""
        first_step, last_step = self._life(first_step, last_step)
        for begin, end in self._pieces(first_step, last_step):
            yield from self._slices(self._candidates(begin, end), end)

    def backwards(self, first_step: int, last_step: int) -> Iterator[Searched | Stop]:
        """Yields the same, the last one first."""
        first_step, last_step = self._life(first_step, last_step)
        for begin, end in reversed(list(self._pieces(first_step, last_step))):
            candidates = self._candidates(begin, end)
            for start in range((len(candidates) - 1) // STEPS_A_SLICE * STEPS_A_SLICE, -1, -STEPS_A_SLICE):
                part = candidates[start : start + STEPS_A_SLICE]
                yield from reversed([stop for step in part if (stop := self._stop_at(step)) is not None])
                yield Searched(part[0])
            yield Searched(begin)

    def _slices(self, candidates: list[int], end: int) -> Iterator[Searched | Stop]:
        for number, step in enumerate(candidates, 1):
            stop = self._stop_at(step)
            if stop is not None:
                yield stop
            if number % STEPS_A_SLICE == 0:
                yield Searched(step)
        yield Searched(end)

    def _stop_at(self, step: int) -> Stop | None:
        before = NOTHING if self._condition.has_happening else self._matched_before(step)
        found = self._look(step) - before
        return Stop(step, self._condition, tuple(sorted(found - {""}))) if found else None

    def _matched_before(self, step: int) -> Matched:
        """Returns for whom it holds in the step before: what held there already does not begin here."""
        before = step - 1
        if before < self._timeline.first_step:
            return NOTHING
        if self._last is not None and self._last[0] == before:
            return self._last[1]
        if not any(self._can_hold(column) for column in self._timeline.summaries(before, 1, 1)):
            return NOTHING
        return self._look(before)

    def _look(self, step: int) -> Matched:
        found = matches(self._condition, StateLook.of(self._moments.at(step)))
        self._last = (step, found)
        return found

    def _can_hold(self, column: StepSummary) -> bool:
        return can_hold(self._condition.node, column, self._num_usable_blocks)

    def _candidates(self, begin: int, end: int) -> list[int]:
        """Returns the steps whose own figures allow the condition."""
        columns = self._timeline.summaries(begin, end - begin + 1, 1)
        return [column.first_step for column in columns if begin <= column.first_step <= end and self._can_hold(column)]

    def _pieces(self, first_step: int, last_step: int) -> Iterator[tuple[int, int]]:
        """Yields the parts of the range in which the condition can hold, in order."""
        begin = first_step - first_step % PIECE_STEPS
        while begin <= last_step:
            for column in self._timeline.summaries(begin, PIECES_A_LOOK, PIECE_STEPS):
                start = max(column.first_step, first_step)
                end = min(column.first_step + PIECE_STEPS - 1, last_step)
                if start <= end and self._can_hold(column):
                    yield start, end
            begin += PIECES_A_LOOK * PIECE_STEPS

    def _life(self, first_step: int, last_step: int) -> tuple[int, int]:
        """Returns the part of the range in which the only request lives that can match; all where there is none."""
        first_step = max(first_step, self._timeline.first_step)
        last_step = min(last_step, self._timeline.last_step)
        only_id = self._condition.only_request_id
        if only_id is None:
            return first_step, last_step
        steps = [step for step, _ in self._timeline.request_events(only_id, first_step, last_step)]
        row = self._timeline.request(only_id)
        if row is None:
            return 0, -1
        end = last_step if row.finished_step is None else min(last_step, row.finished_step)
        return max(first_step, min([row.arrival_step, *steps])), end
