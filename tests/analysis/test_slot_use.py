"""What paging wastes, worked out by hand for two short runs."""

from __future__ import annotations

from kvscope.analysis.slot_use import SlotUse, slot_use
from kvscope.replay import MemoryTimeline
from tests.builders import CheckedRun, scenario


def timeline_of(run: CheckedRun) -> MemoryTimeline:
    timeline = MemoryTimeline("run.db")
    for step, events in run.sink.steps:
        timeline.write_step(step, events)
    timeline.finish()
    return timeline


def test_a_request_wastes_the_rest_of_its_last_block() -> None:
    """Six tokens lie in two blocks of four after step 0, seven after step 1, eight after step 2; then it is gone."""
    run = scenario(blocks=9, block_size=4).request("a", "prompt", reply="wxyz").run()
    assert slot_use(timeline_of(run)) == SlotUse(
        num_held_slots=3 * 2 * 4, num_unused_slots=2 + 1 + 0, peak_held_blocks=2
    )


def test_a_shared_block_counts_once() -> None:
    """b shares one block with a, which holds five, then six tokens; b has six after step 1. Then both end."""
    run = (
        scenario(blocks=9, block_size=4)
        .request("a", "heads", reply="xyz")
        .request("b", "headed", reply="vw", at=1)
        .run()
    )
    found = slot_use(timeline_of(run))
    assert found == SlotUse(num_held_slots=4 * (2 + 3), num_unused_slots=3 + 2 + 2, peak_held_blocks=3)
    assert found.unused_share == 7 / 20


def test_nothing_held_is_no_share() -> None:
    run = scenario(blocks=9, block_size=4).request("a", "heads", reply="x").run()
    assert slot_use(timeline_of(run)).unused_share is None
