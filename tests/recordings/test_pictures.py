"""The pictures of the README."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvscope import events as ev
from kvscope.replay import Replay, open_recording
from kvscope.tui.app import KvscopeApp
from tests.tui import scenes

Compare = Callable[..., Any]
STORM = Path(__file__).parents[2] / "recordings" / "preemption_storm.db"
NUMBER = 10
"""Which of the preemptions is shown: there is history on both sides of it."""


@pytest.fixture
def storm() -> Iterator[Replay]:
    with open_recording(STORM) as timeline:
        yield timeline


def test_a_preemption(snap_compare: Compare, storm: Replay) -> None:
    """A step of the storm that preempts: the first sentence names victim, beneficiary and figures; the victim stands
    first in the waiting queue; the timeline shows the earlier preemptions, evictions and hits, the pool is full."""
    steps = [step for step, events in storm.select_events((ev.RequestPreempted,), 0, storm.last_step) if events]
    assert snap_compare(
        KvscopeApp(storm, initial_step=steps[NUMBER]), terminal_size=(120, 40), run_before=scenes.settle
    )
