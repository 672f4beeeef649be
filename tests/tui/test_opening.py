"""At which step a recording opens when nobody names one."""

from __future__ import annotations

import pytest

from kvscope.replay import MemoryTimeline
from kvscope.tui.opening import opening_step
from tests.builders import scenario
from tests.tui import scenes


def stuck() -> MemoryTimeline:
    """A request that can never be admitted: the run ends with it in the queue."""
    return scenes.recorded(scenario(blocks=3, block_size=4).request("req-1", "far too long a prompt for it").run(3))


def growing() -> MemoryTimeline:
    """Everything was finished, and the engine is still there."""
    return scenes.recorded(scenario(blocks=33).request("req-1", "Hi", reply="Ho").run(4), is_finished=False)


@pytest.mark.parametrize(
    ("timeline", "step"),
    [
        (lambda: scenes.preemption()[0], 0),
        (scenes.one_request, None),
        (stuck, None),
        (scenes.failed_step, None),
        (growing, None),
        (scenes.empty, None),
    ],
)
def test_a_run_that_is_over_opens_at_its_beginning_and_any_other_at_its_end(timeline: object, step: int | None) -> None:
    assert callable(timeline)
    assert opening_step(timeline()) == step
