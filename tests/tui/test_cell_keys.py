"""A cell of several blocks: enter and a double click list them, enter there opens one's biography."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from kvscope.analysis.pool_view import BlockChange, BlockFacts, BlockHolder, BlockStatus, PoolView
from kvscope.tui.app import KvscopeApp
from kvscope.tui.screens.block import BlockScreen
from kvscope.tui.screens.cell import CellScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.view.cell import cell_rows, title_words
from kvscope.tui.view.glyphs import UNICODE
from kvscope.tui.view.lines import Line, block_target, request_target
from kvscope.tui.widgets.lines_view import LinesView
from tests.tui import scenes
from tests.tui.scenes import settle

SIZE = (80, 24)


def text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def shown(app: KvscopeApp) -> list[str]:
    return [text(line) for line in app.screen.query_one("#cell", LinesView).lines]


async def pressed(pilot: Pilot[None], *keys: str) -> KvscopeApp:
    await settle(pilot)
    await pilot.press(*keys)
    await settle(pilot)
    assert isinstance(pilot.app, KvscopeApp)
    return pilot.app


def facts(
    block_id: int,
    status: BlockStatus,
    holders: tuple[BlockHolder, ...] = (),
    origin: BlockHolder | None = None,
    position: int | None = None,
    content: str = "",
) -> BlockFacts:
    return BlockFacts(
        block_id=block_id,
        status=status,
        change=BlockChange.NONE,
        ref_cnt=len(holders),
        holders=holders,
        origin=origin,
        free_queue_position=position,
        text=content,
        num_tokens=0,
    )


def test_each_block_is_a_row_with_its_state_its_holder_its_content_and_its_text() -> None:
    a, b = BlockHolder("req-1", 3), BlockHolder("[b]x[/b]\x1b", 12)
    blocks = [
        facts(0, BlockStatus.NULL),
        facts(1, BlockStatus.LIVE, (a,), None, content="one two"),
        facts(2, BlockStatus.SHARED, (b, a, a), a, content="a␛[31m" * 40),
        facts(3, BlockStatus.CACHED, (), b, 21, "cached"),
        facts(4, BlockStatus.FREE, (), None, 0),
    ]
    pool = PoolView(
        step=7,
        block_size=4,
        status=bytes(block.status for block in blocks),
        change=bytes((0, BlockChange.NEW, 0, 0, BlockChange.RELEASED)),
        ref_cnt=bytes((0, 1, 3, 0, 0)),
        num_live=1,
        num_shared=1,
        num_cached=1,
        num_free=1,
        num_new=1,
        num_evicting=0,
        num_hit=0,
        num_released=1,
    )
    head, entries = cell_rows(blocks, pool, 80, UNICODE)
    assert [text(line) for line in (head, *(line for entry in entries for line in entry.lines))] == [
        " block    ref  held by                published by   text",
        "     0  ∅   0  the null block",
        "     1  +   1  req-1[3]                              “one two”",
        "     2  3   3  [b]x[/b]␛[12] +2 more  req-1[3]       “a␛[31ma␛[31ma␛[31ma␛[31m…”",
        "     3  ░   0  22nd out               [b]x[/b]␛[12]  “cached”",
        "     4  −   0  1st out",
    ]
    assert [entry.target for entry in entries] == [block_target(block_id) for block_id in range(5)]
    jumps = [span.target for span in entries[2].lines[0] if span.target is not None]
    assert jumps == [request_target("[b]x[/b]\x1b"), request_target("req-1")]


@pytest.mark.parametrize(
    ("block_ids", "words"),
    [
        (range(1016, 1024), "8 blocks, 1,016 to 1,023, after step 7"),
        ((5, 4), "2 blocks, as the map listed them, after step 7"),
        ((5,), "block 5, after step 7"),
    ],
)
def test_the_title_says_which_blocks_they_are(block_ids: tuple[int, ...], words: str) -> None:
    assert title_words(block_ids, 7) == words


async def test_enter_lists_the_blocks_of_the_cell_and_enter_there_opens_a_biography() -> None:
    """Rows of 32 cells: 16 of the 2,048 blocks a cell, that of block 1 has 0 to 15."""
    app = scenes.screen(scenes.many_requests(), step=3)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "3")
        app.model.choose_block(1)
        await pressed(pilot, "enter")
        assert isinstance(app.screen, CellScreen)
        rows = shown(app)
        assert "CELL ─ 16 blocks, 0 to 15, after step 3" in rows[0]
        assert [row.split()[0] for row in rows[2:]] == [str(block_id) for block_id in range(16)]
        await pressed(pilot, "j", "semicolon", "semicolon", "comma", "enter")
        assert isinstance(app.screen, BlockScreen)
        assert app.model.block_id == 3
        await pressed(pilot, "semicolon", "escape")
        assert isinstance(app.screen, CellScreen)
        await pressed(pilot, "enter")
        assert (type(app.screen), app.model.block_id) == (BlockScreen, 4)
        await pressed(pilot, "escape", "escape")
        assert isinstance(app.screen, MainScreen)


async def test_the_list_follows_time_and_keeps_its_blocks() -> None:
    """Before step 0 gave out its blocks nobody holds them; then they are req-0's and those behind it."""
    app = scenes.screen(scenes.many_requests(), step=3)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "3")
        app.model.choose_block(1)
        await pressed(pilot, "enter")
        later = shown(app)
        await pressed(pilot, "home")
        assert app.model.step == 0
        first = shown(app)
        assert "after step 0" in first[0]
        assert [row.split()[0] for row in first[2:]] == [row.split()[0] for row in later[2:]]
        assert first[3:] != later[3:]


async def test_a_double_click_opens_the_cell_too_and_a_cell_of_one_block_its_biography() -> None:
    app = scenes.screen(scenes.many_requests(), step=3)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "3")
        await pilot.click("#pool", offset=(8, 3), times=2)
        await settle(pilot)
        assert isinstance(app.screen, CellScreen)
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "3", "enter")
        assert isinstance(app.screen, BlockScreen)
