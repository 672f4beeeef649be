"""`v` lists the pool in another order, `s` the queues: what stands where, and that the cursor stays where it was."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from kvscope.analysis.pool_order import BlockGroup
from kvscope.analysis.pool_view import BlockChange, BlockStatus, PoolView
from kvscope.analysis.queue_order import ORDER_WORDS, QUEUE_ORDERS
from kvscope.tui.app import KvscopeApp
from kvscope.tui.view.glyphs import UNICODE
from kvscope.tui.view.lines import Line
from kvscope.tui.view.pool_grid import OrderedPool, ordered_pool, title_words
from kvscope.tui.view.pool_map import map_lines
from tests.tui import scenes
from tests.tui.scenes import settle

SIZE = (120, 40)
NULL, FREE, CACHED, LIVE, SHARED = BlockStatus


def text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def pool(statuses: list[BlockStatus], new: frozenset[int] = frozenset()) -> PoolView:
    changes = [BlockChange.NEW if block_id in new else BlockChange.NONE for block_id in range(len(statuses))]
    return PoolView(
        step=0,
        block_size=16,
        status=bytes(statuses),
        change=bytes(changes),
        ref_cnt=bytes(2 if status is SHARED else status is LIVE for status in statuses),
        num_live=0,
        num_shared=0,
        num_cached=0,
        num_free=0,
        num_new=0,
        num_evicting=0,
        num_hit=0,
        num_released=0,
    )


def drawn(ordered: OrderedPool) -> list[str]:
    return [text(line) for line in map_lines(ordered.view, ordered.grid, (), None, UNICODE, ordered.labels)]


OWNERS = [
    BlockGroup("request", [5, 1, 2, 9, 10, 11, 12, 13, 14, 15], "请求-7"),
    BlockGroup("request", [3], "b"),
    BlockGroup("cached", [4, 6]),
    BlockGroup("free", [8, 7]),
]


def owned() -> PoolView:
    """a holds 10 blocks, the second of which b shares; b has a third one of its own, just taken."""
    kinds = {1: SHARED, 4: CACHED, 6: CACHED, 7: FREE, 8: FREE}
    return pool([NULL, *(kinds.get(block_id, LIVE) for block_id in range(1, 16))], frozenset({3}))


def test_by_owner_each_request_begins_a_row_where_that_fits() -> None:
    ordered = ordered_pool(owned(), OWNERS, "owner", 26, 6)
    assert drawn(ordered) == [
        "请求-7 ■ 2 ■ ■ ■ ■ ■ ■",
        "    +8 ■ ■",
        "b      +",
        "cached ░ ░",
        "free   · ·",
    ]
    places = [ordered.place_of(block_id) for block_id in (5, 15, 3, 4, 8, 0)]
    assert places == [0, 9, 16, 24, 32, None]


def test_by_owner_one_behind_the_other_where_rows_are_few() -> None:
    """15 blocks in two rows of 8: a row is named for its first block's owner."""
    ordered = ordered_pool(owned(), OWNERS, "owner", 16, 2)
    assert drawn(ordered) == ["请…  ■2■■■■■■", "  +8 ■■+░░··"]
    assert ordered.place_of(3) == 10


def test_a_cell_of_many_blocks_never_mixes_groups_that_have_rows_of_their_own() -> None:
    """13, 12 and 14 blocks in rows of 7 cells of 2 blocks; the last cell of the first row has one block alone."""
    view = pool([NULL, *[LIVE] * 13, *[CACHED] * 12, *[FREE] * 14])
    groups = [
        BlockGroup("request", list(range(1, 14)), "a"),
        BlockGroup("cached", list(range(14, 26))),
        BlockGroup("free", list(range(26, 40))),
    ]
    ordered = ordered_pool(view, groups, "owner", 12, 3)
    assert ordered.grid.blocks_per_cell == 2
    assert drawn(ordered) == ["a    ▆▆▆▆▆▆▆", "cac… ░░░░░░", "free ·······"]


def test_in_the_free_queue_a_row_says_which_of_its_blocks_goes_out_when() -> None:
    groups = [BlockGroup("queue", [8, 7, 4, 6]), BlockGroup("held", [1, 2, 3, 5, 9, 10, 11, 12, 13, 14, 15])]
    assert drawn(ordered_pool(owned(), groups, "free_queue", 22, 5)) == [
        "   1 · · ░ ░",
        "held 2 ■ + ■ ■ ■ ■ ■",
        "  +8 ■ ■ ■",
    ]


@pytest.mark.parametrize(
    ("block_id", "moves", "expected"),
    [
        (5, {"num_cells": 1}, 1),
        (15, {"num_cells": 1}, 3),
        (3, {"num_cells": -1}, 15),
        (7, {"num_cells": 1}, 7),
        (5, {"num_cells": -1}, 5),
        (9, {"num_rows": 1}, 15),
        (14, {"num_rows": 1}, 3),
        (4, {"num_rows": -1}, 3),
        (6, {"num_rows": 9}, 7),
        (0, {"num_cells": 1}, 1),
    ],
)
def test_the_cursor_moves_in_the_order_of_the_map(block_id: int, moves: dict[str, int], expected: int) -> None:
    """Beside the end of a group lies the next one; below a place where no block stands is the last one before it."""
    assert ordered_pool(owned(), OWNERS, "owner", 26, 6).moved(block_id, **moves) == expected


def test_the_title_says_the_order_and_leaves_out_units_before_it() -> None:
    titles = ["".join(span.text for span in title_words(32767, 16, "free_queue", width)) for width in (60, 45, 30)]
    assert titles == ["32,767 blocks × 16 tokens, by free queue", "32,767 blocks, by free queue", "by free queue"]
    assert title_words(48, 16, "id", 38)[0].text == "48 blocks × 16 tokens"


async def pressed(pilot: Pilot[None], *keys: str) -> KvscopeApp:
    await settle(pilot)
    await pilot.press(*keys)
    await settle(pilot)
    assert isinstance(pilot.app, KvscopeApp)
    return pilot.app


async def test_v_goes_through_the_orders_and_the_chosen_block_stays() -> None:
    app = scenes.screen(scenes.preemption()[0], step=20)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "3")
        app.model.choose_block(14)
        seen = []
        for _ in range(4):
            panel = app.main_screen.pool_panel
            await pressed(pilot)
            chosen = [
                (row, sum(len(before.text) for before in line[: line.index(span)]))
                for row, line in enumerate(panel.lines)
                for span in line
                if span.on == "chosen"
            ]
            assert len(chosen) == 1
            seen.append((text(panel.lines[0]).split(", ")[1].strip(" ━"), panel.block_at(*chosen[0])))
            await pressed(pilot, "v")
        assert seen == [("by id", 14), ("by owner", 14), ("by free queue", 14), ("by id", 14)]


async def test_in_another_order_clicks_and_keys_go_to_the_block_that_is_drawn_there() -> None:
    """By owner the first row is req-1's table."""
    app = scenes.screen(scenes.preemption()[0], step=12)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "3", "v")
        assert app.model.moment is not None
        tables = {name: request.block_ids for name, request in app.model.moment.state.requests.items()}
        lines = [text(line) for line in app.main_screen.pool_panel.lines[3:7]]
        assert [line.split()[0] for line in lines] == ["req-1", "req-2", "req-3", "req-4"]
        await pilot.click("#pool", offset=(1 + 6 + 2 * 2, 3))
        await settle(pilot)
        assert app.model.block_id == tables["req-1"][2]
        await pressed(pilot, "semicolon")
        assert app.model.block_id == tables["req-1"][3]
        await pressed(pilot, "j")
        assert app.model.block_id == [block for block in tables["req-2"] if block not in tables["req-1"]][3]


async def test_s_sorts_the_queues_and_their_places_stay_true() -> None:
    """req-4 waits since step 13, req-3 since 28 and was preempted thrice, req-2 since 29; the first has least left."""
    app = scenes.screen(scenes.preemption()[0], step=31)
    seen = []
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(9):
            await pressed(pilot)
            title, _, *rows = [text(line) for line in app.main_screen.queues_panel.lines]
            waiting = [" ".join(row.replace("▸", " ").replace("▲", " ").split()[:2]) for row in rows[:3]]
            seen.append((title.strip("━ ").removeprefix("QUEUES ─ "), waiting))
            await pressed(pilot, "s")
    as_queued = ["1 req-2", "2 req-3", "3 req-4"]
    assert seen == [
        ("QUEUES", as_queued),
        ("running by blocks held", as_queued),
        ("running by tokens so far", as_queued),
        ("running by tokens now", as_queued),
        ("by tokens left", as_queued),
        ("by age", ["3 req-4", "2 req-3", "1 req-2"]),
        ("by preemptions", ["2 req-3", "1 req-2", "3 req-4"]),
        ("by id", as_queued),
        ("QUEUES", as_queued),
    ]
    assert app.model.selected_id == "req-2"


@pytest.mark.parametrize("request_id", ["req-40", "req-150"])
async def test_in_a_small_terminal_the_order_is_said_whole_and_the_selected_row_is_seen(request_id: str) -> None:
    """Dozens of 256 requests run, in a panel of as many rows as fit; the one runs far down, the other waits."""
    app = scenes.screen(scenes.many_requests(), step=3)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        app.model.select(request_id)
        for order in QUEUE_ORDERS:
            await pressed(pilot)
            title, *rows = [text(line) for line in app.main_screen.queues_panel.lines]
            assert (app.model.queue_order, app.model.selected_id) == (order, request_id)
            assert title.strip("━ ") == " ─ ".join(filter(None, ("QUEUES", ORDER_WORDS[order])))
            assert [request_id in row for row in rows if row.startswith("▸")] == [True]
            await pressed(pilot, "s")


async def test_j_and_k_walk_the_queues_as_they_are_sorted() -> None:
    app = scenes.screen(scenes.preemption()[0], step=31)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, *"s" * 5, "g")
        walked = [app.model.selected_id]
        for _ in range(3):
            await pressed(pilot, "j")
            walked.append(app.model.selected_id)
    assert walked == ["req-4", "req-3", "req-2", "req-1"]
