"""Search, breakpoints, blocks and bookmarks, by pilot: in memory, and over a file that is read in a thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from kvscope import events as ev
from kvscope.analysis.conditions.fields import FIELDS
from kvscope.analysis.search import Reached
from kvscope.control import EngineStatus, SetStopConditions, StopCondition
from kvscope.replay import open_recording
from kvscope.replay.bookmarks import Bookmark, Bookmarks
from kvscope.tui.answers import markdown
from kvscope.tui.app import KvscopeApp
from kvscope.tui.key_names import character_key
from kvscope.tui.screens.block import BlockScreen
from kvscope.tui.screens.breakpoints import BreakpointsModal
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.search import SearchScreen
from kvscope.tui.screens.why import WhyScreen
from kvscope.tui.view.lines import Line
from kvscope.tui.widgets.lines_view import LinesView
from tests.recording.runs import record
from tests.tui import scenes
from tests.tui.scenes import FakeEngine, live_screen, settle

SIZE = (120, 40)


def shown(lines: Sequence[Line]) -> str:
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines)


async def done(pilot: Pilot[None]) -> None:
    """Waits until nothing is looked for any more."""
    await pilot.app.workers.wait_for_complete()
    await settle(pilot)


def over_a_file(folder: Path) -> KvscopeApp:
    """The screen over a recording on disk: it is searched in a thread, through a connection of its own."""
    path = record(folder / "run.db", scenes.preempting_run().sink.steps)
    return KvscopeApp(open_recording(path), open_timeline=open_recording)


@pytest.mark.parametrize("is_file", [False, True])
async def test_slash_finds_and_n_goes_from_hit_to_hit(tmp_path: Path, is_file: bool) -> None:
    app = over_a_file(tmp_path) if is_file else scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "slash", *"id:req-", "enter")
        await done(pilot)
        assert isinstance(app.screen, SearchScreen)
        panel = shown(app.screen.hits.lines)
        assert panel.splitlines()[0].startswith("━━ SEARCH ━ “id:req-” ━") or "4 hits in 67 steps" in panel
        assert [line.split()[:3] for line in panel.splitlines()[1:5]] == [
            [str(step), "request", f"req-{step + 1}"] for step in range(4)
        ]
        steps = []
        for key in ("n", "n", "n", "N"):
            await pilot.press(key)
            await settle(pilot)
            steps.append((app.model.step, app.model.selected_id))
        assert steps == [(0, "req-1"), (1, "req-2"), (2, "req-3"), (1, "req-2")]
        await pilot.press("j", "enter")
        await settle(pilot)
        assert isinstance(app.screen, MainScreen)
        assert (app.model.step, app.model.selected_id) == (2, "req-3")
        await pilot.press("n", "n")
        await settle(pilot)
        assert app.model.step == 3  # there is none after it
        await pilot.press("e", "escape", "home", "n")  # e makes events the targets again
        await done(pilot)
        assert app.finding.query is None


async def test_the_main_screen_says_at_which_hit_one_is_and_esc_goes_back_to_events() -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=SIZE) as pilot:

        def rows() -> tuple[str, str]:
            main = app.main_screen
            return shown(main.header.lines), shown(main.footer.lines)

        await settle(pilot)
        assert "n N event f filter" in rows()[1]
        await pilot.press("home", "slash", *"id:req-", "enter")
        await done(pilot)
        await pilot.press("escape", "n")
        await settle(pilot)
        assert "hit 1 of 4: request of req-1 req-1  ■ REPLAY   step 0/66" in rows()[0]
        assert " ".join(rows()[1].split()).startswith("← → step n N hit esc end search")
        await pilot.press("n", "n")
        await settle(pilot)
        assert "hit 3 of 4: request of req-3 req-3  ■ REPLAY   step 2/66" in rows()[0]
        await pilot.press("right")
        await settle(pilot)
        assert "hit 3 of 4" not in rows()[0]  # one is elsewhere now
        await pilot.press("escape")
        await settle(pilot)
        assert [note.message for note in app._notifications][-1] == (
            "the search for “id:req-” is over: n N go to events again"
        )
        assert (app.finding.query, "n N event f filter" in rows()[1], app.model.step) == (None, True, 3)


async def test_a_search_that_was_left_says_what_it_has_looked_through_and_goes_on_there() -> None:
    app = scenes.screen(scenes.preemption()[0], step=50)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("slash", *"id:req", "enter")
        await done(pilot)
        finding = app.finding
        finding.reached, finding.hits = Reached(40, 66), []  # as where it was left
        finding._known.clear()
        finding.version += 1
        app.model.version += 1
        app.show_soon()
        await settle(pilot)
        assert isinstance(app.screen, SearchScreen)
        title = shown(app.screen.hits.lines).splitlines()[0]
        assert "0 hits in steps 40–66 of 67, stopped; / ⏎ goes on" in title
        await pilot.press("slash", "enter")
        await done(pilot)
        assert (finding.reached, [hit.step for hit in finding.hits]) == (Reached(0, 66), [0, 1, 2, 3])


async def test_w_on_a_hit_asks_about_its_request_and_esc_leads_back_to_the_list() -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "slash", *"id:req-", "enter")
        await done(pilot)
        await pilot.press("j", "j", "w")
        await done(pilot)
        assert isinstance(app.screen, WhyScreen)
        assert (app.model.step, app.model.selected_id) == (2, "req-3")
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, SearchScreen)
        await pilot.press("u")
        await settle(pilot)
        assert (app.model.step, app.model.selected_id) == (0, "req-4")


async def test_several_hits_in_one_step_are_gone_to_one_after_another() -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "slash", *"b1", "enter")
        await done(pilot)
        hits = [(hit.step, hit.after.strip()) for hit in app.finding.hits]
        assert hits[:2] == [(0, "allocated"), (0, "published")]
        for _ in range(2):
            await pilot.press("n")
            await settle(pilot)
        assert (app.finding.current, app.model.step, app.model.block_id) == (1, 0, 1)


async def test_a_search_that_began_in_the_middle_finds_what_lies_before_too() -> None:
    app = scenes.screen(scenes.preemption()[0], step=50)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("slash", *"id:req", "enter")
        await done(pilot)
        assert [hit.step for hit in app.finding.hits] == [0, 1, 2, 3]
        assert (app.finding.reached, app.finding.is_searching) == (Reached(0, 66), False)


async def test_hits_that_are_found_later_before_the_chosen_one_do_not_move_the_choice() -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "slash", *"id:req-", "enter")
        await done(pilot)
        await pilot.press("j", "j")
        assert isinstance(app.screen, SearchScreen)
        panel = app.screen.hits
        chosen = app.finding.hits[panel.current]
        app.finding._hear(dataclasses.replace(app.finding.hits[0], match="another"))
        app.finding._show()
        await settle(pilot)
        assert app.finding.hits[panel.current] == chosen
        assert (len(app.finding.hits), panel.current) == (5, 3)


async def test_what_cannot_be_looked_for_is_said_below_the_line() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("slash", *"/a(/", "enter")
        message = shown(app.screen.query_one("#message", LinesView).lines)
        assert message == "column 3: this is no regular expression: missing ), unterminated subpattern"


async def test_esc_ends_a_search_and_then_leaves_its_place() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("slash", *"Paris", "enter")
        app.finding._worker = app.run_worker(_for_ever())
        await settle(pilot)
        assert app.finding.is_searching
        await pilot.press("escape")
        assert isinstance(app.screen, SearchScreen)
        assert not app.finding.is_searching
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)


async def _for_ever() -> None:
    import asyncio

    await asyncio.Event().wait()


async def press_condition(pilot: Pilot[None], text: str) -> None:
    """Opens the list of breakpoints, where it is not open, and enters a condition."""
    if not isinstance(pilot.app.screen, BreakpointsModal):
        await pilot.press("b")
        await pilot.pause()
    field = pilot.app.screen.query_one("#condition", Input)
    field.focus()
    field.value = text
    await pilot.press("enter")
    await pilot.pause()


@pytest.mark.parametrize("is_file", [False, True])
async def test_space_runs_to_the_next_breakpoint_and_B_back(tmp_path: Path, is_file: bool) -> None:
    app = over_a_file(tmp_path) if is_file else scenes.screen(scenes.preemption()[0])
    _, preempted = scenes.preemption()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home")
        await press_condition(pilot, "preempted")
        await press_condition(pilot, 'request == "req-1" and output_tokens == 3')
        await pilot.press("escape", "space")
        await done(pilot)
        assert (app.model.step, app.model.selected_id) == (2, "req-1")  # one token in each of the steps 0 to 2
        assert 'breakpoint: request == "req-1" and output_tokens == 3' in shown(app.main_screen.header.lines)
        await pilot.press("space")
        await done(pilot)
        assert (app.model.step, app.model.selected_id) == (preempted, "req-4")  # the victim
        assert "breakpoint: preempted" in shown(app.main_screen.header.lines)
        await pilot.press("space")
        await done(pilot)
        later = app.model.step
        assert later > preempted
        await pilot.press("B")
        await done(pilot)
        assert app.model.step == preempted
        await pilot.press("home", "right", "right", "right", "B")
        await done(pilot)
        assert app.model.step == 2


async def test_without_breakpoints_space_plays() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "space")
        assert app.model.is_playing
        await pilot.press("space")
        assert not app.model.is_playing


async def test_a_wrong_condition_is_shown_with_a_caret() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=SIZE) as pilot:
        await press_condition(pilot, "preempted and free_block < 4")
        assert shown(app.screen.query_one("#message", LinesView).lines) == (
            "              ^\nthere is no field free_block: did you mean free_blocks?"
        )
        assert app.breakpoints.all == []


async def test_a_long_condition_is_repeated_around_the_place() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=(80, 24)) as pilot:
        await press_condition(pilot, "running > 0 and " * 8 + "nobody and " + "running > 0 and " * 8)
        lines = shown(app.screen.query_one("#message", LinesView).lines).splitlines()
        assert lines[0][lines[1].index("^") :].startswith("nobody and")
        assert max(map(len, lines)) <= 76


async def test_the_list_turns_breakpoints_off_and_removes_them() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=SIZE) as pilot:
        await press_condition(pilot, "finished")
        await press_condition(pilot, "stalled")
        lines = shown(app.screen.query_one("#breakpoints", LinesView).lines).splitlines()
        assert lines[1:] == [" [✓] finished", " [✓] stalled"]
        await pilot.press("k", "space")
        assert [one.is_enabled for one in app.breakpoints.all] == [False, True]
        await pilot.press("j", "x")
        assert [one.condition.text for one in app.breakpoints.all] == ["finished"]
        assert app.breakpoints.enabled == []
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)


async def test_a_condition_typed_over_the_list_goes_into_the_line() -> None:
    """Its letters were keys: `q` and `b` closed the list, and what followed moved the screen below."""
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home")
        await press_condition(pilot, "stalled")
        for text in ("aborted", "blocks > 1", "(hit)", 'request == "q"'):
            assert app.screen.query_one("#breakpoints").has_focus
            await pilot.press(*(character_key(char) for char in text), "enter")
            await pilot.pause()
        assert [one.condition.text for one in app.breakpoints.all] == [
            "stalled",
            "aborted",
            "blocks > 1",
            "(hit)",
            'request == "q"',
        ]
        assert app.model.step == 0


def test_no_field_begins_with_a_key_of_the_list() -> None:
    assert {name[0] for name in FIELDS} & set("jkxqi") == set()


async def test_live_breakpoints_go_to_the_engine() -> None:
    engine = FakeEngine(EngineStatus(phase="paused", recording="r.db"))
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=SIZE) as pilot:
        app._poll()
        await pilot.press("escape")
        await press_condition(pilot, "free_blocks < 4")
        await press_condition(pilot, "preempted")
        await pilot.press("k", "space")
        await done(pilot)
        sent = [command for command in engine.commands if isinstance(command, SetStopConditions)]
        assert [[condition.expression for condition in command.conditions] for command in sent] == [
            ["free_blocks < 4"],
            ["free_blocks < 4", "preempted"],
            ["preempted"],
        ]
        assert sent[-1].conditions == (StopCondition(expression="preempted"),)


@pytest.mark.parametrize("is_file", [False, True])
async def test_enter_on_a_block_opens_its_biography_whose_lines_are_jumps(tmp_path: Path, is_file: bool) -> None:
    app = over_a_file(tmp_path) if is_file else scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "3")
        await settle(pilot)
        app.model.choose_block(1)
        await pilot.press("enter")
        await done(pilot)
        assert isinstance(app.screen, BlockScreen)
        facts = shown(app.screen.facts.lines).splitlines()
        assert facts[1] == " now       held by one request · taken in this step"
        assert facts[2] == " holders   req-1[0]"
        life = shown(app.screen.biography.lines).splitlines()
        assert life[1:4] == ["  0 + taken for req-1", life[2], life[3]]
        assert life[2].startswith("  0 ░ published for prefix hits: block 0 of req-1, hash ")
        await pilot.press("j", "enter")  # the list begins at the last line up to the step
        await done(pilot)
        assert isinstance(app.screen, BlockScreen)
        assert str(app.model.step) == life[3].split()[0]
        await pilot.press("semicolon")
        await done(pilot)
        assert app.model.block_id == 2
        assert "BLOCK 2" in shown(app.screen.facts.lines)
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)


async def test_a_click_on_the_hash_of_a_block_opens_what_became_of_it() -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "right", "colon", *"b1", "enter")
        await done(pilot)
        assert isinstance(app.screen, BlockScreen)
        facts = shown(app.screen.facts.lines).splitlines()
        row = next(number for number, line in enumerate(facts) if ", hash " in line)
        digits = facts[row].split(", hash ")[1]
        await pilot.click("#block", offset=(facts[row].index(digits) + 3, row))
        await done(pilot)
        assert isinstance(app.screen, SearchScreen)
        assert [(hit.kind, hit.match) for hit in app.finding.hits] == [("hash", digits)] * len(app.finding.hits)
        assert app.finding.hits[0].block_id == 1
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, BlockScreen)


async def test_going_to_a_block_opens_its_place() -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("colon", *"b5", "enter")
        await done(pilot)
        assert isinstance(app.screen, BlockScreen)
        assert app.model.block_id == 5


async def test_bookmarks_are_set_listed_gone_to_and_removed(tmp_path: Path) -> None:
    app = over_a_file(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "m", *"first", "enter", "end", "m", "enter")
        await settle(pilot)
        assert Bookmarks(tmp_path / "run.db").read() == [Bookmark(step=0, note="first"), Bookmark(step=66)]
        await pilot.press("apostrophe")
        await settle(pilot)
        lines = shown(app.screen.query_one("#bookmarks", LinesView).lines).splitlines()
        assert lines[1:] == ["  0  first", " 66  no note"]
        await pilot.press("k", "enter")
        await settle(pilot)
        assert app.model.step == 0
        await pilot.press("apostrophe", "x", "escape")
        assert Bookmarks(tmp_path / "run.db").read() == [Bookmark(step=66)]


async def test_a_folder_that_cannot_be_written_is_said_in_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> tuple[int, str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kvscope.replay.bookmarks.tempfile.mkstemp", refuse)
    app = over_a_file(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("m", "enter")
        await settle(pilot)
        message = shown(app.screen.query_one("#message", LinesView).lines).replace("\n", " ")
        assert message.startswith("the bookmark was not kept: ")
        assert list(tmp_path.iterdir()) == [tmp_path / "run.db"]


async def test_a_recording_in_memory_has_no_bookmarks() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("m")
        await settle(pilot)
        assert isinstance(app.screen, MainScreen)
        assert [str(toast.message) for toast in app._notifications] == [
            "this recording is in memory alone: there is no file to keep bookmarks beside"
        ]


async def test_the_copied_step_carries_its_note(tmp_path: Path) -> None:
    app = over_a_file(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "m", *"look", "enter", "y")
        await settle(pilot)
        lines = app.clipboard.splitlines()
    assert lines[:5] == ["## Step 0 of run.db", "", "> look", "", "```"]


async def test_in_a_requests_place_the_request_is_copied_and_its_command(tmp_path: Path) -> None:
    app = over_a_file(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "colon", *"req-1", "enter", "enter", "y")
        await settle(pilot)
        lines = app.clipboard.splitlines()
        assert lines[0] == "## req-1 after step 0 of run.db"
        assert lines[lines.index("", 2) + 1] == "REQUEST req-1  prefill after step 0"
        await pilot.press("Y")
        await settle(pilot)
        assert app.clipboard == f"kvscope show {tmp_path / 'run.db'} --step 0 --request req-1"
        await pilot.press("w", "Y")
        await settle(pilot)
        assert app.clipboard == f"kvscope why {tmp_path / 'run.db'} req-1 --step 0"


def test_no_line_of_a_report_ends_the_fence_around_it() -> None:
    assert markdown("t", [], ["a ```` b"]) == "## t\n\n`````\na ```` b\n`````\n"
    assert markdown("t", ["> n", ""], ["a"]) == "## t\n\n> n\n\n```\na\n```\n"


@pytest.mark.parametrize(
    ("detail", "holds", "selected"),
    [
        ("breakpoint: preempted", False, "req-4"),
        ('breakpoint: request == "req-3" and preempted == 0', False, "req-3"),
        ("breakpoint: preempted", True, "req-1"),  # somebody looks at an earlier step
        ("breakpoint: a word of tomorrow", False, "req-1"),
        ("RequestPreempted in step 9", False, "req-1"),
    ],
)
async def test_where_a_condition_stops_the_engine_its_request_is_selected(
    detail: str, holds: bool, selected: str
) -> None:
    run = scenes.preempting_run()
    step, event = run.all_events(ev.RequestPreempted)[0]
    assert event.request_id == "req-4"
    del run.sink.steps[step + 1 :]
    engine = FakeEngine(EngineStatus(phase="running", recording="scene.db", step=step))
    app = live_screen(engine, [scenes.recorded(run)])
    async with app.run_test(size=SIZE) as pilot:
        app._poll()
        await settle(pilot)
        app.model.select("req-1")
        if holds:
            await pilot.press("escape", "left")
        engine.status = EngineStatus(phase="paused", recording="scene.db", step=step, detail=detail)
        app._poll()
        await settle(pilot)
        assert app.model.selected_id == selected
        app.model.select("req-2")
        app._poll()  # it is done once
        assert app.model.selected_id == "req-2"
