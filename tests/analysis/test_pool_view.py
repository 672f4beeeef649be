"""The pool as arrays: what each block is, and the last thing that happened to it in the step."""

from __future__ import annotations

from kvscope.analysis.pool_view import (
    BlockChange,
    BlockFacts,
    BlockHolder,
    BlockStatus,
    NextOut,
    block_facts,
    next_out,
    pool_view,
)
from tests.analysis.reading import read
from tests.analysis.runs import preempting, sharing
from tests.builders import CheckedRun, scenario

NULL, FREE, CACHED, LIVE, SHARED = BlockStatus
NONE, NEW, EVICTING, HIT, RELEASED = BlockChange


def _status(run: CheckedRun, step: int) -> list[int]:
    timeline = read(run)
    return list(pool_view(timeline, timeline.at(step)).status)


def _change(run: CheckedRun, step: int) -> list[int]:
    timeline = read(run)
    return list(pool_view(timeline, timeline.at(step)).change)


def test_a_released_block_that_is_taken_again_is_new() -> None:
    run = preempting()
    assert _status(run, 1) == [NULL, LIVE, LIVE, CACHED, LIVE]
    assert _change(run, 1) == [NONE, NONE, NONE, RELEASED, NEW]


def test_a_block_shows_its_last_event_of_the_step() -> None:
    """In step 3 b hits 3 and takes 4; c evicts 2 and ends in the same step."""
    run = preempting()
    assert _status(run, 3) == [NULL, CACHED, FREE, LIVE, LIVE]
    assert _change(run, 3) == [NONE, NONE, RELEASED, HIT, NEW]


def test_a_block_taken_at_the_cost_of_a_cached_one_is_evicting() -> None:
    run = scenario(blocks=3).request("a", "abcdefgh").request("b", "ABCDEFGH", reply="xy", at=1).run(2)
    assert _change(run, 1) == [NONE, EVICTING, EVICTING]


def test_counts_are_those_of_the_legend() -> None:
    timeline = read(sharing())
    view = pool_view(timeline, timeline.at(1))
    assert (view.num_live, view.num_shared, view.num_cached, view.num_free) == (2, 2, 0, 27)
    assert (view.num_new, view.num_evicting, view.num_hit, view.num_released) == (1, 0, 2, 0)
    assert list(view.ref_cnt[:5]) == [0, 2, 2, 1, 1]
    assert view.num_usable_blocks == 31


def test_the_head_of_the_free_queue_says_what_is_lost() -> None:
    timeline = read(preempting())
    assert next_out(timeline.at(2), 3) == [NextOut(4, False), NextOut(3, True), NextOut(2, True)]
    assert next_out(timeline.at(0), 3) == []


def test_a_block_held_by_one_request() -> None:
    """Block 4 is a's third: of its tokens x and y only x is computed."""
    timeline = read(preempting())
    assert block_facts(timeline, timeline.at(1), 4) == BlockFacts(
        block_id=4,
        status=LIVE,
        change=NEW,
        ref_cnt=1,
        holders=(BlockHolder("a", 2),),
        origin=None,
        free_queue_position=None,
        text="xy",
        num_tokens=1,
    )


def test_a_cached_block_keeps_its_text_and_its_origin_after_its_request_is_gone() -> None:
    timeline = read(preempting())
    assert block_facts(timeline, timeline.at(4), 1) == BlockFacts(
        block_id=1,
        status=CACHED,
        change=NONE,
        ref_cnt=0,
        holders=(),
        origin=BlockHolder("a", 0),
        free_queue_position=2,
        text="abcd",
        num_tokens=4,
    )


def test_a_shared_block_names_all_who_hold_it() -> None:
    timeline = read(sharing())
    facts = block_facts(timeline, timeline.at(1), 2)
    assert facts is not None
    assert (facts.status, facts.holders, facts.text) == (SHARED, (BlockHolder("a", 1), BlockHolder("b", 1)), "romp")


def test_the_null_block_and_a_block_that_is_not_there() -> None:
    timeline = read(preempting())
    null = block_facts(timeline, timeline.at(1), 0)
    assert null is not None
    assert (null.status, null.text) == (NULL, "")
    assert block_facts(timeline, timeline.at(1), 5) is None
