"""The event log by pilot: what it lists, how it is filtered, where it leads; in memory and over a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from kvscope import events as ev
from kvscope.replay import MemoryTimeline, open_recording
from kvscope.tui.app import KvscopeApp
from kvscope.tui.screens.event_log import EventLogScreen, LoggedKindsModal
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.view.lines import Line
from tests.recording.runs import record
from tests.tui import scenes
from tests.tui.scenes import settle

SIZE = (120, 40)


def text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip(" ━─")


def place(app: KvscopeApp) -> EventLogScreen:
    assert isinstance(app.screen, EventLogScreen)
    return app.screen


def chosen(app: KvscopeApp) -> tuple[int, int] | None:
    line = place(app).log_lines.line
    return None if line is None else line.place


async def pressed(pilot: Pilot[None], *keys: str) -> None:
    """Presses the keys and waits until what they asked for is read."""
    for key in keys:
        await pilot.press(key)
        await settle(pilot)
        await pilot.app.workers.wait_for_complete()
        await settle(pilot)


def over_a_file(folder: Path) -> KvscopeApp:
    path = record(folder / "run.db", scenes.preempting_run().sink.steps)
    return KvscopeApp(open_recording(path), open_timeline=open_recording, initial_step=13)


@pytest.mark.parametrize("is_file", [False, True])
async def test_the_log_begins_at_the_step_and_shows_what_is_around_it(tmp_path: Path, is_file: bool) -> None:
    app = over_a_file(tmp_path) if is_file else scenes.screen(scenes.preemption()[0], step=13)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "E")
        assert chosen(app) == (13, 1)
        lines = [text(line) for line in place(app).list.lines]
        assert [part.strip("━ ") for part in lines[0].split("━━ ")[1:]] == [
            "EVENTS ─ all kinds",
            "1 of 11 of step 13",
        ]
        begin = next(index for index, line in enumerate(lines) if line.startswith(" 13 "))
        assert lines[begin - 1].split()[:2] == ["7", "StepFinished"]
        assert lines[begin : begin + 3] == [
            " 13  1  StepStarted        · schedule() began with a budget of 32 tokens",
            "     2  AllocationFailed   ✗ req-2 got no blocks for 1 token while it ran: needs 1 > 0 free (blocks)",
            "     3  RequestPreempted   ▲ req-4 preempted for req-2: frees 5 of 7 blocks, 26 tokens lost, "
            "back to place 1 of the wai…",
        ]
        assert lines[begin + 11].startswith(" 14  1  StepStarted")


async def test_enter_goes_to_the_event_with_its_request_and_block_and_u_comes_back() -> None:
    app = scenes.screen(scenes.preemption()[0], step=13)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "home", "E", "end", "colon", *"13", "enter", "j", "j", "j", "j", "enter")
        assert isinstance(app.screen, MainScreen)
        assert (app.model.step, app.model.walk.number) == (13, 5)
        assert (app.model.selected_id, app.model.block_id) == ("req-2", 22)
        title = text(app.screen.step_panel.lines[0])
        assert title.split(" ───")[0] == "── STEP ─ 13  event 5 of 11: BlockAllocated"
        await pressed(pilot, "E")
        assert chosen(app) == (13, 5)
        standing = [text(line) for line in place(app).list.lines if line[0].text == "▸"]
        assert standing == ["▸    5  BlockAllocated     + req-2 took 1 block from the head of the free queue: 22"]


async def test_the_chosen_event_is_told_in_full_with_its_fields() -> None:
    app = scenes.screen(scenes.preemption()[0], step=13)
    async with app.run_test(size=(80, 24)) as pilot:
        await pressed(pilot, "E", "j", "j", "j")
        row = next(text(line) for line in place(app).list.lines if line and line[0].on == "row")
        assert row == "     4  BlockReleased      − req-4 gave back 7 blocks; 1 to the head of the fre…"
        assert [text(line) for line in place(app).event.lines] == [
            "── EVENT ─ BlockReleased",
            " − req-4 gave back 7 blocks; 1 to the head of the free queue: 22; 4 to its tail:",
            "   18 14–12; 2 still held by others: 7 6",
            "   request_id req-4  freed_to_head [22]  freed_to_tail [18,14,13,12]",
            "   still_held [7,6]",
        ]


async def test_kinds_are_chosen_and_kept_for_the_next_time() -> None:
    app = scenes.screen(scenes.preemption()[0], step=13)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "E", "j", "j", "e")
        assert isinstance(app.screen, LoggedKindsModal)
        await pressed(pilot, "o", "escape")  # the chosen event is a preemption
        lines = [text(line) for line in place(app).list.lines]
        assert lines[0].startswith("━━ EVENTS ─ RequestPreempted ━")
        preemptions = [
            (step, event.request_id)
            for step, event in app.model.timeline.kind_events((ev.RequestPreempted,), 0, 66)  # type: ignore[union-attr]
            if isinstance(event, ev.RequestPreempted)
        ]
        assert len(preemptions) > 3
        assert [tuple(line.split()[index] for index in (0, 4)) for line in lines[1:] if line] == [
            (str(step), request_id) for step, request_id in preemptions
        ]
        assert chosen(app) == (13, 3)
        await pressed(pilot, "escape", "home", "E")
        assert text(place(app).list.lines[0]).startswith("━━ EVENTS ─ RequestPreempted ━")
        assert chosen(app) == (13, 3)  # the first one after step 0
        await pressed(pilot, "e", "a", "a", "escape")
        assert text(place(app).list.lines[0]).startswith("━━ EVENTS ─ all kinds ━")
        await pressed(pilot, "colon", *"13", "enter", "e", "d", "escape")
        assert text(place(app).list.lines[0]).startswith("━━ EVENTS ─ decisions ━")
        kinds = [type(line.event).__name__ for line in place(app).log_lines.lines if line.step == 13]
        assert kinds == [
            *("AllocationFailed", "RequestPreempted", "BlockReleased", "BlockAllocated", "BlockCached"),
            "RequestBlocked",
        ]


async def test_f_lists_one_request_and_then_all_again() -> None:
    app = scenes.screen(scenes.preemption()[0], step=13)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "E", "j", "j", "f")
        assert text(place(app).list.lines[0]).startswith("━━ EVENTS ─ all kinds of req-4 ━")
        assert {line.event.request_id for line in place(app).log_lines.lines if hasattr(line.event, "request_id")} == {
            "req-4"
        }
        assert chosen(app) == (13, 3)
        await pressed(pilot, "f")
        assert text(place(app).list.lines[0]).startswith("━━ EVENTS ─ all kinds ━")
        assert chosen(app) == (13, 3)


async def test_time_takes_the_list_along_and_walking_never_ends_at_what_was_read() -> None:
    app = scenes.screen(scenes.preemption()[0], step=13)
    async with app.run_test(size=(80, 24)) as pilot:
        await pressed(pilot, "E", "right", "right")
        assert chosen(app) == (15, 1)
        await pressed(pilot, "end")
        assert chosen(app) == (66, 1)
        await pressed(pilot, *["k"] * 3)
        assert chosen(app) == (65, 3)
        for _ in range(12):
            await pressed(pilot, "g")
        assert chosen(app) == (0, 1)
        covered = [(line.step, line.number) for line in place(app).log_lines.lines]
        assert covered == sorted(set(covered))
        assert (place(app).log_lines.begin, place(app).log_lines.end) == (0, 66)


async def test_a_click_chooses_and_a_click_on_a_request_opens_it() -> None:
    app = scenes.screen(scenes.preemption()[0], step=13)
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "E")
        lines = [text(line) for line in place(app).list.lines]
        row = next(index for index, line in enumerate(lines) if "BlockReleased" in line)
        await pilot.click("#events", offset=(14, row))
        await settle(pilot)
        assert chosen(app) == (13, 4)
        assert text(place(app).event.lines[0]) == "── EVENT ─ BlockReleased"
        await pilot.click("#events", offset=(lines[row].index("req-4"), row))
        await settle(pilot)
        assert app.model.selected_id == "req-4"
        assert type(app.screen).__name__ == "RequestScreen"


async def test_a_growing_recording_is_followed_line_by_line() -> None:
    run = scenes.preempting_run()
    timeline = MemoryTimeline("growing.db")
    for step, events in run.sink.steps[:5]:
        timeline.write_step(step, events)
    app = scenes.screen(timeline)
    timeline.refresh = lambda: True  # type: ignore[method-assign]  # a file would be looked at; this one knows
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "E")
        assert chosen(app) == (4, 1)
        before = [line.place for line in place(app).log_lines.lines]
        for step, events in run.sink.steps[5:8]:
            timeline.write_step(step, events)
        app._poll()
        await pressed(pilot)
        await settle(pilot)
        assert chosen(app) == (7, 1)
        added = [(step, number) for step, events in run.sink.steps[5:8] for number in range(1, len(events) + 1)]
        assert [line.place for line in place(app).log_lines.lines] == before + added


async def test_a_recording_without_a_step_has_no_log() -> None:
    app = scenes.screen(scenes.empty())
    async with app.run_test(size=SIZE) as pilot:
        await pressed(pilot, "E", "right_square_bracket")
        assert isinstance(app.screen, MainScreen)
        assert [str(toast.message) for toast in app._notifications] == [
            "there is no step yet: nothing has happened",
            "no event after this one",
        ]
