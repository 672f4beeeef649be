"""What analysis remembers of a timeline between two calls: the facts of the last moment, tokens of requests.

A timeline is read by many small questions about one step; this keeps each from being worked out twice. Everything here
can be forgotten at any time without changing an answer.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary

from kvscope.analysis.step_facts import StepFacts, step_facts
from kvscope.replay.timeline import Moment, RequestRow, Timeline

TOKEN_BYTES = 4
_MAX_REMEMBERED_BYTES = 16_000_000
"""Four million tokens: many times what a pool of 32,768 blocks holds."""
_MAX_ROWS = 10_000
_MAX_PLACES = 64


class Remembered:
    """The memory of one timeline. Holds the last moment only."""

    def __init__(self) -> None:
        self._moment: Moment | None = None
        self._facts: StepFacts | None = None
        self._of_moment: dict[Hashable, Any] = {}
        self._tokens: OrderedDict[str, bytes] = OrderedDict()
        self._tokens_until: dict[str, int] = {}
        """The step up to which they were read."""
        self._num_token_bytes = 0
        self._rows: dict[str, RequestRow] = {}
        self._kept: dict[str, dict[Hashable, object]] = {}

    def facts(self, moment: Moment) -> StepFacts:
        """Returns the step's facts."""
        self._enter(moment)
        if self._facts is None:
            self._facts = step_facts(moment)
        return self._facts

    def of_moment(self, moment: Moment) -> dict[Hashable, Any]:
        """Returns a place for results that hold for this moment only."""
        self._enter(moment)
        return self._of_moment

    def kept(self, name: str) -> dict[Hashable, object]:
        """Returns a place for facts that hold for ever; who fills it bounds it."""
        if name not in self._kept and len(self._kept) >= _MAX_PLACES:
            self._kept.clear()
        return self._kept.setdefault(name, {})

    def _enter(self, moment: Moment) -> None:
        if self._moment is not moment:
            self._moment = moment
            self._facts = None
            self._of_moment = {}

    def packed_tokens(self, timeline: Timeline, request_id: str, step: int, num_tokens: int) -> bytes:
        """Returns at least the request's first `num_tokens` tokens (where it has them), each as four bytes.

        Tokens never change, so what was read for a later step serves an earlier one.
        """
        known = self._tokens.get(request_id)
        if known is None:  # the prompt first: it is quick to read, and mostly enough
            known = self._read(timeline, request_id, timeline.first_step)
        if len(known) < num_tokens * TOKEN_BYTES and step > self._tokens_until[request_id]:
            known = self._read(timeline, request_id, step)
        self._tokens.move_to_end(request_id)
        return known

    def _read(self, timeline: Timeline, request_id: str, step: int) -> bytes:
        packed = array("I", timeline.token_ids(request_id, step)).tobytes()
        self._num_token_bytes += len(packed) - len(self._tokens.get(request_id, b""))
        self._tokens[request_id] = packed
        self._tokens_until[request_id] = step
        while self._num_token_bytes > _MAX_REMEMBERED_BYTES and len(self._tokens) > 1:
            dropped_id, dropped = self._tokens.popitem(last=False)
            self._num_token_bytes -= len(dropped)
            del self._tokens_until[dropped_id]
        return packed

    def ended_request_row(self, timeline: Timeline, request_id: str) -> RequestRow | None:
        """Returns the row of a request whose arrival (not its progress) is asked for."""
        row = self._rows.get(request_id)
        if row is None:
            row = timeline.request(request_id)
            if row is not None:
                if len(self._rows) >= _MAX_ROWS:
                    self._rows.clear()
                self._rows[request_id] = row
        return row


_memories: WeakKeyDictionary[Timeline, Remembered] = WeakKeyDictionary()


def remembered(timeline: Timeline) -> Remembered:
    """Returns the memory of a timeline; it goes when the timeline goes."""
    memory = _memories.get(timeline)
    if memory is None:
        memory = _memories[timeline] = Remembered()
    return memory
