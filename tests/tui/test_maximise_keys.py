"""`Z` gives the focused panel the whole screen: nothing of it is left out then, and all keys and clicks go on."""

from __future__ import annotations

import pytest
from textual.geometry import Region
from textual.pilot import Pilot

from kvscope.control import EngineStatus
from kvscope.tui.app import KvscopeApp
from kvscope.tui.view.lanes import chart_heights
from kvscope.tui.view.lines import Line
from kvscope.tui.view.queues import queue_slots
from kvscope.tui.view.windowing import Gap
from kvscope.tui.widgets.panel import Panel
from tests.tui import scenes
from tests.tui.scenes import FakeEngine, live_screen, settle

SMALL = (80, 24)


def text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def shown(panel: Panel) -> list[str]:
    return [text(line) for line in panel.lines]


def displayed(app: KvscopeApp) -> list[str]:
    return [panel.id or "" for panel in app.main_screen.panels if panel.display]


async def pressed(pilot: Pilot[None], *keys: str) -> KvscopeApp:
    await settle(pilot)
    for key in keys:
        await pilot.press(key)
        await settle(pilot)
    assert isinstance(pilot.app, KvscopeApp)
    return pilot.app


@pytest.mark.parametrize("size", [SMALL, (120, 40), (200, 55), (250, 70), (59, 15)], ids=lambda size: str(size[0]))
async def test_each_panel_can_have_the_whole_screen_at_every_size(size: tuple[int, int]) -> None:
    app = scenes.screen(scenes.preemption()[0], step=20)
    columns, rows = size
    async with app.run_test(size=size) as pilot:
        await pressed(pilot)
        normal = displayed(app)
        await pressed(pilot, "2", "Z")
        for key, name in (("5", "timeline"), ("1", "step"), ("4", "request"), ("3", "pool"), ("2", "queues")):
            await pressed(pilot, key)
            panel = app.main_screen.query_one(f"#{name}", Panel)
            assert (displayed(app), panel.region) == ([name], Region(0, 1, columns, rows - 2))
            assert panel.has_focus
            assert panel.lines
            assert all(len(line) <= columns for line in shown(panel))
        await pressed(pilot, "Z")
        assert displayed(app) == normal
        assert app.main_screen.queues_panel.has_focus


async def test_z_and_escape_lead_back_and_tab_hands_the_screen_on() -> None:
    app = scenes.screen(scenes.preemption()[0], step=20)
    async with app.run_test(size=SMALL) as pilot:
        seen = []
        for key in ("Z", "tab", "tab", "shift+tab", "escape", "tab", "Z", "escape", "escape"):
            await pressed(pilot, key)
            seen.append((len(displayed(app)), app.focused.id if app.focused else None))
        assert seen == [
            (1, "queues"),
            (1, "pool"),
            (1, "request"),
            (1, "pool"),
            (4, "pool"),
            (4, "timeline"),
            (1, "timeline"),
            (4, "timeline"),
            (4, "queues"),
        ]


async def test_all_sentences_are_read_without_opening_anything() -> None:
    timeline, step = scenes.preemption()
    app = scenes.screen(timeline, step=step)
    async with app.run_test(size=SMALL) as pilot:
        await pressed(pilot)
        assert shown(app.main_screen.step_panel)[-1] == "   … 3 more, enter to read all"
        await pressed(pilot, "1", "Z")
        lines = shown(app.main_screen.step_panel)
        assert [line for line in lines[1:] if line and not line.startswith("   ")] == [
            " ▲ req-4 preempted for req-2, which needed 1 block with 0 free: 5 of 7 blocks",
            " ✗ Nobody admitted: a preempting step admits no one; 1 waits, none would fit",
            " + 1 block taken from the head of the free queue: req-2 22, just freed by the",
            " = 29 of 32 tokens unused while 1 waited: admission was off after the preemption",
            " ░ 1 full block published for prefix hits (it doubles one published before):",
        ]


async def test_a_long_queue_scrolls_to_its_end_and_back_with_figures_beside() -> None:
    app = scenes.screen(scenes.many_requests())
    async with app.run_test(size=SMALL) as pilot:
        await pressed(pilot, "Z")
        lines = shown(app.main_screen.queues_panel)
        assert len(lines) == 22
        assert lines[1] == "WAITING 192                             tokens   since  preempted  steps waited"
        assert lines[2].split() == ["▸", "1", "req-64", "seqs", "64/64", "21", "0", "5"]
        assert lines[11].split()[:2] == ["RUNNING", "64/64"]
        await pressed(pilot, "G")
        lines = shown(app.main_screen.queues_panel)
        assert app.model.selected_id == "req-63"
        assert lines[-1].split()[0] == "▸req-63"
        assert lines[-1].split()[2:] == ["21/44", "1/23", "0", "+21", "pre", "6+6"]
        await pressed(pilot, "g")
        assert app.model.selected_id == "req-64"


def test_what_both_queues_need_is_theirs_and_else_each_has_its_half() -> None:
    def heights(num_waiting: int, num_running: int) -> tuple[int, int, int]:
        slots = queue_slots(
            num_waiting, num_running, 22, 64, selected_waiting=None, selected_running=None, is_maximised=True
        )
        left_out = sum(slot.num_rows for slot in (*slots.waiting, *slots.running) if isinstance(slot, Gap))
        return slots.num_waiting_lines, slots.num_running_lines, left_out

    assert heights(3, 5) == (4, 16, 0)
    assert heights(0, 64) == (1, 19, 46)
    assert heights(200, 5) == (15, 5, 186)
    assert heights(200, 64) == (10, 10, 191 + 55)
    assert heights(3, 64) == (3, 17, 48)


async def test_the_pool_is_drawn_in_a_roomier_density_and_tells_all_of_the_chosen_block() -> None:
    app = scenes.screen(scenes.many_requests())
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, "3")
        assert "1 cell = 4 blocks" in shown(app.main_screen.pool_panel)[2]
        app.model.choose_block(7)
        await pressed(pilot, "Z")
        lines = shown(app.main_screen.pool_panel)
        assert "1 cell" not in lines[2]
        assert lines[3].startswith("   0 ∅■■■■■■■")
        assert lines[-7].startswith("── block 7 ──")
        assert [line.split()[0] for line in lines[-6:] if line] == ["now", "holders", "published", "holds", "text"]


async def test_clicks_go_where_the_large_panels_show_it() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, "Z")
        row = next(row for row, line in enumerate(shown(app.main_screen.queues_panel)) if " req-3 " in line)
        await pilot.click("#queues", offset=(60, row))
        await settle(pilot)
        assert app.model.selected_id == "req-3"
        await pressed(pilot, "3")
        await pilot.click("#pool", offset=(3 + 2 * 9, 3))
        await settle(pilot)
        assert app.model.block_id == 9
        await pressed(pilot, "5")
        await pilot.click("#timeline", offset=(19 + 2, 5))
        await settle(pilot)
        assert app.model.step == 2
        assert displayed(app) == ["timeline"]


async def test_the_lanes_of_the_timeline() -> None:
    """The step of the preemption: what each lane says of it, and which marks stand below it."""
    timeline, step = scenes.preemption()
    app = scenes.screen(timeline, step=step)
    async with app.run_test(size=SMALL) as pilot:
        await pressed(pilot, "5", "Z")
        lines = shown(app.main_screen.timeline_panel)
        assert [part.strip("━ ") for part in lines[0].split(" ━━━")] == [
            "TIMELINE ─ steps 0 to 60, 1 step a column",
            "Z shows all panels",
        ]
        gutters = [" ".join(line[:19].split()) for line in lines[1:]]
        assert gutters == [
            *("TOKENS 3/32", "█ prefill 0", "█ decode 3", "█ draft 0"),
            *("BLOCKS 19/23", "█ live 19", "░ cached 4"),
            *("RUNNING 3/4", "most 4", "WAITING 1", "most 3"),
            *("STEP TIME 8.1 ms", "most 8.1 ms"),
            *("✖ failed 0", "▲ preempted 6", "! stalled 0", "◆ evicted 25", "● hit 8", "✓ finished 3"),
            *("req-4", "×1"),
        ]
        assert [line.ljust(80)[19 + step] for line in lines[14:20]] == [" ", "▲", " ", " ", " ", " "]


@pytest.mark.parametrize(("height", "rows"), [(21, [4, 3, 2, 2, 2]), (37, [11, 6, 4, 4, 4]), (9, [1, 1, 1, 1, 1])])
def test_the_charts_of_the_lanes_share_the_rows(height: int, rows: list[int]) -> None:
    assert chart_heights(height) == rows


async def test_a_prompt_that_is_left_comes_back_to_the_large_panel() -> None:
    engine = FakeEngine(EngineStatus(phase="paused", recording="scene.db", step=11))
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await pressed(pilot, "escape", "3", "Z", "p", "escape")
        assert displayed(app) == ["pool"]
        assert app.main_screen.pool_panel.has_focus
