"""What happened between two steps of a recording, counted in one pass over the events, and told of requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvscope import events as ev
from kvscope.analysis.sentences import sentences
from kvscope.analysis.spans import Sentence
from kvscope.replay.timeline import Timeline

MAX_HAPPENINGS = 200
"""Sentences that are made of the steps in between; the counts know no limit."""

_TOLD = (ev.RequestPreempted, ev.RequestAdmitted, ev.RequestResumed, ev.RequestFinished, ev.RequestAborted)
_TOLD_TONES = ("preempted", "admitted", "hit", "finished", "aborted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What happened after step A, up to and with step B."""

    num_steps: int
    duration_ns: int | None
    """From the start of A to the start of B; None without a clock."""
    num_scheduled_tokens: int
    num_preempted: int
    num_admitted: int
    num_resumed: int
    num_finished: int
    num_aborted: int
    num_evicted_blocks: int
    num_hit_tokens: int


class Journey:
    """The events after step A, up to and with step B."""

    def __init__(self, timeline: Timeline, step_a: int, step_b: int) -> None:
        self._timeline = timeline
        self._num_steps = step_b - step_a
        self.preempted: Counter[str] = Counter()
        self.ran: Counter[str] = Counter()
        self.ended: dict[str, str] = {}
        """Requests that ended in between: "finished" or "aborted"."""
        self._told_steps: list[int] = []
        """Steps in which something was decided about a request's place, that is worth a sentence."""
        self._counts: Counter[type] = Counter()
        self._num_evicted = self._num_hits = self._num_tokens = 0
        kinds = (*_TOLD, ev.BlockEvicted, ev.PrefixCacheHit, ev.TokensScheduled)
        for step, events in timeline.select_events(kinds, step_a + 1, step_b):
            if any(isinstance(event, _TOLD) for event in events):
                self._told_steps.append(step)
            for event in events:
                self._note(event)

    def _note(self, event: ev.Event) -> None:
        self._counts[type(event)] += 1
        match event:
            case ev.RequestPreempted():
                self.preempted[event.request_id] += 1
            case ev.RequestFinished():
                self.ended[event.request_id] = "finished"
            case ev.RequestAborted():
                self.ended[event.request_id] = "aborted"
            case ev.BlockEvicted():
                self._num_evicted += len(event.block_ids)
            case ev.PrefixCacheHit():
                self._num_hits += event.num_hit_tokens
            case ev.TokensScheduled():
                self._num_tokens += sum(event.num_tokens)
                self.ran.update(event.request_ids)
            case _:
                pass

    def between(self, duration_ns: int | None) -> Between:
        """Returns the counts. `duration_ns` lies between the starts of the two steps, None without a clock."""
        return Between(
            num_steps=self._num_steps,
            duration_ns=duration_ns,
            num_scheduled_tokens=self._num_tokens,
            num_preempted=self._counts[ev.RequestPreempted],
            num_admitted=self._counts[ev.RequestAdmitted],
            num_resumed=self._counts[ev.RequestResumed],
            num_finished=self._counts[ev.RequestFinished],
            num_aborted=self._counts[ev.RequestAborted],
            num_evicted_blocks=self._num_evicted,
            num_hit_tokens=self._num_hits,
        )

    def happenings(self) -> tuple[tuple[int, Sentence], ...]:
        """Returns steps and what was decided in them about requests, the rarest kind first. Moves the timeline."""
        told: list[tuple[int, Sentence]] = []
        for step in self._told_steps:
            moment = self._timeline.at(step)
            told += [(step, said) for said in sentences(self._timeline, moment) if said.tone in _TOLD_TONES]
            if len(told) >= MAX_HAPPENINGS:
                break
        frequency = Counter(said.tone for _, said in told)
        return tuple(sorted(told[:MAX_HAPPENINGS], key=lambda entry: frequency[entry[1].tone]))
