"""Recordings of scripted runs, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvscope.analysis.sentences import sentences
from kvscope.events import Event, TokenTextRecorded
from kvscope.replay import MemoryTimeline
from tests.builders import CheckedRun


def read_steps(steps: Iterable[tuple[int, Sequence[Event]]]) -> MemoryTimeline:
    """Returns a timeline of the steps."""
    timeline = MemoryTimeline()
    for step, events in steps:
        timeline.write_step(step, events)
    return timeline


def read(run: CheckedRun) -> MemoryTimeline:
    """Returns a run as a timeline; its tokens stand for the letters that they were made of."""
    steps = run.sink.steps
    letters = {token_id for request in run.scenario.requests for token_id in request.prompt_token_ids}
    letters |= {token_id for request in run.scenario.requests for token_id in request.output_token_ids}
    known = sorted(letter for letter in letters if letter < 0xD800)
    text = TokenTextRecorded(token_ids=tuple(known), token_bytes=tuple(chr(letter).encode() for letter in known))
    return read_steps([(0, [*steps[0][1], text]), *steps[1:]])


def said(run: CheckedRun, step: int) -> list[str]:
    """Returns the step's sentences as plain text."""
    timeline = read(run)
    return [str(sentence) for sentence in sentences(timeline, timeline.at(step))]
