"""The event log: which events are listed, from any step in both directions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope import events as ev
from kvscope.analysis.event_log import KINDS, EventFilter, LoggedEvent, read_log
from kvscope.analysis.searched import Searched
from kvscope.replay import open_recording
from kvscope.replay.timeline import Timeline
from tests.analysis.reading import read, read_steps
from tests.analysis.runs import preempting
from tests.recording.runs import golden_steps, record


def listed(timeline: Timeline, chosen: EventFilter, first: int, last: int, *, is_backwards: bool = False) -> list[str]:
    """Returns `step.number/of kind` of each listed event."""
    found = read_log(timeline, chosen, first, last, is_backwards=is_backwards)
    return [
        f"{line.step}.{line.number}/{line.num_events} {type(line.event).__name__}"
        for line in found
        if isinstance(line, LoggedEvent)
    ]


BLOCKS = EventFilter(frozenset({ev.BlockAllocated, ev.BlockReleased}))


def test_kinds_are_listed_with_their_places_in_the_step() -> None:
    """a and b take two blocks each in step 0; in step 1 b gives its two back and a takes one of them."""
    timeline = read(preempting())
    assert listed(timeline, BLOCKS, 0, 1) == [
        "0.6/17 BlockAllocated",
        "0.10/17 BlockAllocated",
        "1.5/11 BlockReleased",
        "1.6/11 BlockAllocated",
    ]
    assert listed(timeline, BLOCKS, 0, 1, is_backwards=True) == listed(timeline, BLOCKS, 0, 1)[::-1]


def test_of_one_request_batches_are_listed_only_where_their_kind_is_chosen() -> None:
    timeline = read(preempting())
    own = ["RequestPreempted", "BlockReleased", "RequestBlocked"]
    assert [line.split()[1] for line in listed(timeline, EventFilter(request_id="b"), 1, 1)] == own
    scheduled: frozenset[type[ev.Event]] = frozenset({ev.TokensScheduled, ev.RequestPreempted})
    found = listed(timeline, EventFilter(scheduled, "b"), 0, 4)
    assert [line.split()[1] for line in found] == ["TokensScheduled", "RequestPreempted", *["TokensScheduled"] * 2]
    everything = EventFilter(scheduled, "nobody")
    assert listed(timeline, everything, 0, 4) == []


FILTERS = {
    "all": EventFilter(),
    "some kinds": EventFilter(frozenset({ev.BlockEvicted, ev.RequestFinished, ev.StepStarted})),
    "rare kind": EventFilter(frozenset({ev.RequestAborted})),
    "a request": EventFilter(request_id="r03"),
    "kinds of a request": EventFilter(frozenset({ev.BlockAllocated, ev.TokensSampled}), "r03"),
}


@pytest.mark.parametrize("name", FILTERS)
def test_what_is_listed_are_all_events_that_pass_the_filter(tmp_path: Path, name: str) -> None:
    """Over a file and over memory, forwards and backwards, however the steps are divided."""
    chosen = FILTERS[name]
    steps = golden_steps("rand1010")
    expected = [
        f"{step}.{number}/{len(events)} {type(event).__name__}"
        for step, events in steps
        for number, event in enumerate(events, 1)
        if chosen.accepts(event)
    ]
    assert expected or name == "rare kind"
    last = len(steps) - 1
    with open_recording(record(tmp_path / "run.db", steps)) as replay:
        for timeline in (replay, read_steps(steps)):
            assert listed(timeline, chosen, 0, last) == expected
            assert listed(timeline, chosen, 0, last, is_backwards=True) == expected[::-1]
            assert listed(timeline, chosen, 0, 20) + listed(timeline, chosen, 21, last) == expected


def test_after_each_stretch_it_says_how_far_it_is() -> None:
    timeline = read(preempting())
    last = timeline.last_step
    assert [piece for piece in read_log(timeline, BLOCKS, 1, last) if isinstance(piece, Searched)] == [Searched(last)]
    back = list(read_log(timeline, EventFilter(), 0, last, is_backwards=True))
    assert [piece for piece in back if isinstance(piece, Searched)] == [Searched(0)]
    assert isinstance(back[-1], Searched)


def test_the_filter_of_all_kinds_is_no_filter() -> None:
    assert EventFilter().is_all
    assert not EventFilter(frozenset(KINDS[1:])).is_all
    assert not EventFilter(request_id="a").is_all
