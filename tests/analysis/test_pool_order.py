"""In which order a map lists the blocks of a pool."""

from __future__ import annotations

from kvscope.analysis.pool_order import BlockGroup, PoolOrder, block_groups
from kvscope.replay.memory import MemoryTimeline
from kvscope.replay.timeline import Moment
from kvscope.state import BlockOrigins, EngineState, FreeQueue
from tests.analysis.reading import read
from tests.analysis.runs import preempting, sharing
from tests.builders import CheckedRun, scenario


def groups(run: CheckedRun, step: int, order: PoolOrder) -> list[BlockGroup]:
    timeline = read(run)
    return block_groups(timeline, timeline.at(step), order)


def test_by_id_is_one_group_with_the_null_block_first() -> None:
    assert groups(preempting(), 2, "id") == [BlockGroup("all", [0, 1, 2, 3, 4])]


def test_by_free_queue_what_goes_out_next_comes_first() -> None:
    """After step 1 of the run a holds 1, 2 and 4, b has given 3 back; after step 2 all are free but none in order."""
    assert groups(preempting(), 1, "free_queue") == [BlockGroup("queue", [3]), BlockGroup("held", [1, 2, 4])]
    assert groups(preempting(), 2, "free_queue") == [BlockGroup("queue", [4, 3, 2, 1])]


def test_by_owner_tables_come_first_then_cached_then_free_blocks() -> None:
    """After step 3 b holds 3 and 4; of the free ones 1 is a's first cached block, and 2 has lost its hash."""
    assert groups(preempting(), 3, "owner") == [
        BlockGroup("request", [3, 4], "b"),
        BlockGroup("cached", [1]),
        BlockGroup("free", [2]),
    ]


def test_a_shared_block_stands_once_with_the_first_who_holds_it() -> None:
    found = groups(sharing(), 1, "owner")
    assert found[:2] == [BlockGroup("request", [1, 2, 3], "a"), BlockGroup("request", [4], "b")]
    assert [group.kind for group in found] == ["request", "request", "free"]


def test_cached_blocks_stand_by_who_computed_them_and_in_the_order_of_its_text() -> None:
    """Tails go first into the free queue, so that a's second block is taken before its first."""
    run = scenario(blocks=9).request("b", "ABCDEFGH").request("a", "abcdefgh").run()
    step = len(run.sink.steps) - 1
    assert groups(run, step, "free_queue")[0].block_ids[-4:] == [2, 1, 4, 3]
    assert groups(run, step, "owner")[0] == BlockGroup("cached", [3, 4, 1, 2])


def test_a_table_whose_ids_fall_stays_in_its_order_when_it_is_cached_only() -> None:
    """x frees its tail first, so that a takes block 2 before block 1."""
    run = scenario(blocks=3).request("x", "abcdefgh").request("a", "ABCDEFGH", at=1).run()
    assert groups(run, len(run.sink.steps) - 1, "owner") == [BlockGroup("cached", [2, 1])]


def test_two_blocks_of_one_origin_stand_by_id_whichever_was_published_first() -> None:
    found = [
        EngineState(
            ref_cnts=[0] * 4,
            free_queue=FreeQueue([3, 2, 1]),
            cached_from=BlockOrigins.of_pool(
                4, {block_id: ("b", 0) if block_id == 2 else ("a", 5) for block_id in block_ids}
            ),
        )
        for block_ids in ([3, 2, 1], [1, 2, 3])
    ]
    timeline = MemoryTimeline()
    for state in found:
        assert block_groups(timeline, Moment(0, state, ()), "owner") == [BlockGroup("cached", [1, 3, 2])]
