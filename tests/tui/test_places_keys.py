"""The keys of the places why, compare and statistics, by pilot: what they show, and where one is after them."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from kvscope.errors import RecordingError
from kvscope.replay import open_recording
from kvscope.replay.timeline import Timeline
from kvscope.tui.app import KvscopeApp
from kvscope.tui.desk import QuestionLeft, WatchedTimeline
from kvscope.tui.screens.block import BlockScreen
from kvscope.tui.screens.compare import CompareScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.modals import TextModal
from kvscope.tui.screens.request import RequestScreen
from kvscope.tui.screens.statistics import StatisticsScreen
from kvscope.tui.screens.sweep import SweepScreen
from kvscope.tui.screens.why import WhyScreen
from kvscope.tui.widgets.lines_view import LinesView
from tests.tui import scenes
from tests.tui.scenes import settle

STORM = Path(__file__).parents[2] / "recordings" / "preemption_storm.db"


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Presses keys, and waits for the answer that is asked for after them."""
    await pilot.press(*keys)
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await settle(pilot)


def shown(app: KvscopeApp, panel: str) -> str:
    """Returns what a panel of the top place shows."""
    lines = app.screen.query_one(panel, LinesView).lines
    return "\n".join("".join(span.text for span in line) for line in lines)


def over_file(step: int) -> KvscopeApp:
    """Returns the screen over a recorded storm, read in a thread where it takes longer."""
    return KvscopeApp(open_recording(STORM), open_timeline=open_recording, initial_step=step)


# Why


async def test_w_answers_with_need_and_have_and_what_would_help() -> None:
    app = over_file(203)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "w")
        assert "The pool is 1 block short. req-10 needs 3 blocks for all its 122 tokens" in shown(app, "#answer")
        assert "enough  ≤ 14 tokens away" in shown(app, "#holders")
        assert "49 → 50  (1 more)" in shown(app, "#side")


async def test_the_answer_follows_the_step_and_the_request_may_run_then() -> None:
    app = over_file(203)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "w", "left", "left")
        assert app.model.step == 201
        assert "req-10 was preempted in this step" in shown(app, "#answer")
        await press(pilot, "left")
        assert shown(app, "#answer").startswith(" req-10 decodes 1 token at step 200")
        life = shown(app, "#life")
        assert "Preempted at step 169 by its own need, it needed 1 block with 0 free" in life
        assert "9191 against 21073: “How does a clock keep time? A…” against “How" in life
        await press(pilot, "G")
        assert shown(app, "#life") != life
        assert app.model.step == 200  # the list moved, not the step


async def test_w_again_shows_the_whole_life_and_this_step_again() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "w", "w")
        assert "req-5: 31 prompt tokens, 0 of at most 25 sampled; arrived at step 4" in shown(app, "#life")
        await press(pilot, "w")
        screen = app.screen
        assert isinstance(screen, WhyScreen)
        assert (screen.holders.display, screen.life.display) == (True, False)
        assert app.model.moment is not None
        assert app.model.moment.state.step == 6  # what was read elsewhere moved nothing here


async def test_esc_from_the_holder_leads_back_to_the_request_that_was_asked_about_and_u_too() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "w", "j", "enter")
        assert isinstance(app.screen, RequestScreen)
        assert app.model.selected_id == "req-2"
        await press(pilot, "escape")
        assert isinstance(app.screen, WhyScreen)
        assert "The pool is 4 blocks short. req-5 needs 8 blocks" in shown(app, "#answer")
        await press(pilot, "enter", "u")
        assert (type(app.screen), app.model.selected_id) == (WhyScreen, "req-5")
        await press(pilot, "U")
        assert (type(app.screen), app.model.selected_id) == (RequestScreen, "req-2")
        await press(pilot, "u", "u")
        assert [note.message for note in app._notifications][-1] == "there is no place to go back to"
        await press(pilot, "tab", "enter")
        assert (type(app.screen), app.model.selected_id) == (RequestScreen, "req-6")
        await press(pilot, "escape", "escape")
        assert (type(app.screen), app.model.selected_id) == (MainScreen, "req-5")


async def test_a_place_that_was_left_is_opened_again_on_the_way_back() -> None:
    """From block 7's biography to a request, up twice, and back by u: the request, the block."""
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "colon", "b", "7", "enter", "g", "enter")
        assert isinstance(app.screen, BlockScreen)
        step, request_id = app.model.step, app.model.selected_id
        assert (step, request_id) == (0, "req-1")  # whom its first event is about
        await press(pilot, "escape")
        assert isinstance(app.screen, MainScreen)
        await press(pilot, "u")
        assert (type(app.screen), app.model.step, app.model.block_id) == (BlockScreen, 6, 7)
        await press(pilot, "u")  # before `:b7`
        assert (type(app.screen), app.model.step, app.model.block_id) == (
            MainScreen,
            6,
            None,
        )  # a request that waits was selected


async def test_n_goes_to_what_happened_to_this_request() -> None:
    app = scenes.screen(scenes.preemption()[0], step=13)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "w", "n")
        assert (app.model.selected_id, app.model.step) == ("req-4", 42)  # it is resumed
        await press(pilot, "n", "n")
        assert app.model.step == 66  # it ends, and nothing comes after
        await press(pilot, "N", "N", "N", "N")
        assert app.model.step == 3  # it arrives


async def test_the_command_of_each_place_is_copied() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "t", "Y")
        assert app.clipboard == "kvscope stats scene.db"
        await press(pilot, "escape", "d", "home", "d", "Y")
        assert app.clipboard == "kvscope diff scene.db --steps 0 6"


async def test_a_click_on_the_history_seeks() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "w")
        await pilot.click("#history", offset=(13, 3))  # its first column is the step of its arrival
        await press(pilot)
        await settle(pilot)
        assert app.model.step == 4


async def test_a_hostile_id_is_shown_and_not_obeyed() -> None:
    app = scenes.screen(scenes.hostile_text())
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "w")
        assert "[b]req[/b]␛[7m" in shown(app, "#answer")
        await press(pilot, "escape", "d", "left", "d")
        assert "[b]req[/b]␛[7m" in shown(app, "#differences")


# Compare


async def test_d_marks_then_compares_and_b_follows_the_step() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "d", "left", "left", "left", "left")
        assert isinstance(app.screen, MainScreen)
        assert app.model.mark_step == 6
        await press(pilot, "d")
        assert isinstance(app.screen, CompareScreen)
        assert shown(app, "#steps").startswith(" A  step 2   B  step 6 (marked)   4 steps, 32 ms, 34 tokens later")
        assert "live blocks              18       27       +9" in shown(app, "#differences")
        assert "+ taken 9   − given back 0   ~ other owner 2   ■ same 16   · free 5" in shown(app, "#between")
        await press(pilot, "right")
        assert shown(app, "#steps").startswith(" A  step 3   B  step 6 (marked)   3 steps, 24 ms, 12 tokens later")
        await press(pilot, "end")
        assert "This is step A." in shown(app, "#steps")
        await press(pilot, "home", "d")
        assert app.model.mark_step == 0
        await press(pilot, "D")
        assert isinstance(app.screen, MainScreen)
        assert app.model.mark_step is None


async def test_enter_on_what_happened_goes_to_its_step_and_the_mark_stays() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "d", "home", "d")
        await press(pilot, "tab", "enter")
        assert isinstance(app.screen, MainScreen)
        assert (app.model.step, app.model.mark_step) == (2, 6)  # req-3's admission, the only one without a hit
        await press(pilot, "u", "d")
        await press(pilot, "enter")
        assert isinstance(app.screen, RequestScreen)
        assert (app.model.step, app.model.selected_id) == (0, "req-2")


# Statistics


async def test_t_shows_figures_and_findings_and_enter_goes_to_the_finding() -> None:
    app = over_file(0)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "t")
        await press(pilot)  # the detectors come after the figures
        assert "14 requests, 464 steps in 10.17 s" in shown(app, "#run")
        assert "20, of 11 requests: 2,900 tokens" in shown(app, "#numbers")
        assert "25 found, enter jumps" in shown(app, "#findings")
        await press(pilot, "n")  # the first finding behind step 0
        assert (app.model.step, app.model.selected_id) == (4, "req-8")
        await press(pilot, "g", "enter")
        assert isinstance(app.screen, MainScreen)
        assert (app.model.step, app.model.selected_id) == (59, "req-8")
        await press(pilot, "t")
        assert "25 found" in shown(app, "#findings")  # known already


async def test_w_on_a_finding_asks_about_its_request_and_esc_leads_back_to_the_list() -> None:
    app = over_file(0)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "t")
        await press(pilot)
        selected = app.model.selected_id
        await press(pilot, "g", "w")
        assert isinstance(app.screen, WhyScreen)
        assert (selected, app.model.step, app.model.selected_id) == ("req-2", 59, "req-8")
        await press(pilot, "escape")
        assert isinstance(app.screen, StatisticsScreen)


async def test_statistics_can_be_left_before_they_are_there() -> None:
    app = over_file(0)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("t")
        await pilot.press("escape")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert isinstance(app.screen, MainScreen)
        await press(pilot, "t", "tab")
        screen = app.screen
        assert isinstance(screen, StatisticsScreen)
        assert (screen.findings.display, screen.numbers.display) == (False, True)
        assert "144.5 prompt tokens/s" in shown(app, "#numbers")


async def test_help_lists_the_keys_of_the_place() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 90)) as pilot:
        await settle(pilot)
        await press(pilot, "w", "question_mark")
        assert isinstance(app.screen, TextModal)
        text = shown(app, "#text")
        for words in ("its whole life, or this step", "mark step A; again: compare with it", "statistics of the run"):
            assert words in text
        assert "what happened to it next" in text
        assert "next event" not in text  # what the place has instead


# Reading in a thread


async def test_a_recording_that_cannot_be_opened_again_says_so_in_the_place() -> None:
    def refuse(path: Path) -> Timeline:
        raise RecordingError(f"{path.name} is damaged")  # the whole path could be cut at the panel's width

    app = KvscopeApp(open_recording(STORM), open_timeline=refuse, initial_step=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "t")
        assert "preemption_storm.db is damaged" in shown(app, "#numbers")
        await press(pilot, "escape")
        assert isinstance(app.screen, MainScreen)


def test_a_question_that_is_left_ends_at_its_next_look() -> None:
    watch = WatchedTimeline(scenes.full_pool())
    watch.at(3)
    assert (watch.step, watch.last_step) == (3, 6)
    steps = iter(watch.events(0, 6))
    assert next(steps)[0] == 0
    watch.is_left = True
    with pytest.raises(QuestionLeft):
        next(steps)
    with pytest.raises(QuestionLeft):
        watch.at(4)


# What if


async def test_o_in_the_statistics_runs_the_workload_under_other_values() -> None:
    app = over_file(150)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "t", "o", *"num_gpu_blocks=49,96", "enter")
        await press(pilot)
        assert isinstance(app.screen, SweepScreen)
        rows = shown(app, "#sweep").splitlines()
        assert rows[3].split()[:2] == ["49", "*"]
        assert rows[3].split()[-1] == "20"  # the recorded preemptions
        assert rows[4].split()[-1] == "1"
        await press(pilot, "o", "x", "enter")  # 49,96x: the second value is no number
        await press(pilot)
        assert "num_gpu_blocks" in shown(app, "#sweep")
        assert not any("━" * 3 in row and "p99" in row for row in shown(app, "#sweep").splitlines()[2:])
        await press(pilot, "escape", "escape")
        assert isinstance(app.screen, MainScreen)
