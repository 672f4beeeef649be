"""What the keys do, by pilot: where the cursor stands and what is selected after them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from textual.events import Key
from textual.pilot import Pilot

from kvscope.control import Abort, EnginePhase, EngineStatus, Pause, Resume, Shutdown, Step, Submit
from kvscope.replay import MemoryTimeline
from kvscope.tui.app import KvscopeApp
from kvscope.tui.screens.block import BlockScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.request import RequestScreen
from kvscope.tui.view.lines import Line
from kvscope.tui.widgets.lines_view import LinesView
from tests.tui import scenes
from tests.tui.scenes import FakeEngine, live_screen, settle


def shown(lines: Sequence[Line]) -> str:
    return "\n".join("".join(span.text for span in line) for line in lines)


async def after(app: KvscopeApp, *keys: str, size: tuple[int, int] = (120, 40)) -> KvscopeApp:
    """Returns the app as it stands after the keys (it has ended then: only its model and lines are read)."""
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await pilot.press(*keys)
        await settle(pilot)
    return app


async def heard(pilot: Pilot[None], engine: FakeEngine, num_commands: int) -> None:
    """Waits until the engine has so many commands, however busy the machine is."""
    for _ in range(1000):
        if len(engine.commands) >= num_commands:
            return
        await pilot.pause()


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        ((), 66),
        (("left",), 65),
        (("h", "h", "l"), 65),
        (("shift+left",), 56),
        (("H", "L"), 66),
        (("home",), 0),
        (("0", "right"), 1),
        (("0", "end"), 66),
        (("0", "dollar_sign"), 66),
        (("0", "left"), 0),
        (("colon", *"40", "enter"), 40),
        (("colon", *"50%", "enter"), 33),
        (("colon", *"-6", "enter"), 60),
        (("colon", *"0.1s", "enter"), 12),
    ],
)
async def test_time(keys: tuple[str, ...], step: int) -> None:
    app = await after(scenes.screen(scenes.preemption()[0]), *keys)
    assert app.model.step == step


async def test_the_first_preemption_is_two_keys_away_and_its_victim_is_in_the_first_sentence() -> None:
    timeline, step = scenes.preemption()
    app = scenes.screen(timeline)
    app.navigation.targets.kinds = {"preempted"}
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("home", "n")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert app.model.step == step
        assert "req-4 preempted for req-2, which needed 1 block with 0 free" in shown(app.main_screen.step_panel.lines)
        await pilot.press("N")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert app.model.step == step  # there is none before it


async def test_going_somewhere_that_is_not_there_says_the_range_and_stays() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("colon", *"99", "enter")
        await settle(pilot)
        message = shown(app.screen.query_one("#message", LinesView).lines)
        assert message == "there is no step 99: the recording has 0 to 11"
        await pilot.press("escape")
        assert app.model.step == 11


async def test_going_to_a_request_selects_it_and_its_arrival() -> None:
    app = await after(scenes.screen(scenes.preemption()[0]), "colon", *"req-3", "enter")
    assert (app.model.selected_id, app.model.step) == ("req-3", 2)


async def test_u_brings_back_step_and_selection() -> None:
    app = await after(scenes.screen(scenes.preemption()[0], step=13), "colon", *"req-3", "enter", "home", "u")
    assert (app.model.step, app.model.selected_id) == (13, "req-4")


async def test_j_and_k_walk_the_queues_across_both() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        selected = [app.model.selected_id]
        for key in ("j", "down", "j", "k", "G", "g"):
            await pilot.press(key)
            await settle(pilot)
            selected.append(app.model.selected_id)
    assert selected == ["req-5", "req-6", "req-1", "req-2", "req-1", "req-4", "req-5"]


async def test_the_selection_stays_while_time_moves_and_says_when_it_lives() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("home")
        await settle(pilot)
        assert app.model.selected_id == "req-5"
        assert "arrives at step 4" in shown(app.main_screen.request_panel.lines)


async def test_tab_goes_round_the_panels_and_digits_go_to_one() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        focused = [app.focused.id if app.focused else None]
        for key in ("tab", "tab", "tab", "shift+tab", "1", "4", "escape"):
            await pilot.press(key)
            focused.append(app.focused.id if app.focused else None)
    assert focused == ["queues", "pool", "request", "timeline", "request", "step", "request", "queues"]


async def test_at_80_columns_4_puts_the_request_in_the_place_of_the_pool() -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=(80, 24)) as pilot:
        main = app.main_screen
        assert (main.pool_panel.display, main.request_panel.display) == (True, False)
        await pilot.press("4")
        assert (main.pool_panel.display, main.request_panel.display) == (False, True)
        await pilot.press("3")
        assert (main.pool_panel.display, main.request_panel.display) == (True, False)


async def test_a_click_on_a_request_a_block_and_the_timeline() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.click("#queues", offset=(12, 11))
        await settle(pilot)
        assert app.model.selected_id == "req-2"
        await pilot.click("#pool", offset=(4 + 2 * 3, 3))
        await settle(pilot)
        assert app.model.block_id == 3
        await pilot.click("#timeline", offset=(19 + 2, 1))
        await settle(pilot)
        assert app.model.step == 2


async def test_two_clicks_on_a_name_open_what_it_names() -> None:
    """Two clicks beside the name opened the request, two on it did nothing."""
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        lines = shown(app.main_screen.queues_panel.lines).splitlines()
        row = next(number for number, line in enumerate(lines) if "req-2" in line)
        await pilot.click("#queues", offset=(lines[row].index("req-2") + 1, row), times=2)
        await settle(pilot)
        assert (type(app.screen), app.model.selected_id) == (RequestScreen, "req-2")
        await pilot.press("escape")
        await settle(pilot)
        lines = shown(app.main_screen.pool_panel.lines).splitlines()
        row = next(number for number, line in enumerate(lines) if line.startswith("next out"))
        block_id = lines[row].split("·")[1].split()[0]
        await pilot.click("#pool", offset=(lines[row].index("·") + 2, row), times=2)
        await settle(pilot)
        assert (type(app.screen), app.model.block_id) == (BlockScreen, int(block_id))


async def test_enter_opens_the_request_and_escape_keeps_the_step() -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("enter", "left", "left")
        await settle(pilot)
        assert isinstance(app.screen, RequestScreen)
        assert app.model.step == 64
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)
        assert app.model.step == 64


async def test_space_plays_a_recording_and_stops_it() -> None:
    app = scenes.screen(scenes.one_request(), step=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        assert app.model.is_playing
        await pilot.press("space")
        assert not app.model.is_playing


async def test_a_growing_recording_is_followed_until_one_goes_back() -> None:
    run = scenes.preempting_run()
    timeline = MemoryTimeline("growing.db")
    steps = [(step, list(events)) for step, events in run.sink.steps]
    for step, events in steps[:5]:
        timeline.write_step(step, events)
    app = scenes.screen(timeline)
    timeline.refresh = lambda: True  # type: ignore[method-assign]  # a file would be looked at; this one knows
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert app.model.step == 4
        timeline.write_step(*steps[5])
        app._poll()
        await settle(pilot)
        assert app.model.step == 5
        await pilot.press("left")
        await settle(pilot)
        timeline.write_step(*steps[6])
        app._poll()
        await settle(pilot)
        assert app.model.step == 4
        assert "◀ HELD, 2 behind" in shown(app.main_screen.header.lines)
        await pilot.press("end")
        await settle(pilot)
        assert app.model.step == 6


# An engine


RUNNING = EngineStatus(phase="running", recording="scene.db", step=11, num_running=1)


async def test_while_the_model_loads_the_screen_says_so_and_prompts_can_be_typed() -> None:
    engine = FakeEngine(EngineStatus(phase="loading", detail="reading weights", progress=0.45))
    app = live_screen(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await settle(pilot)
        assert "… LOADING 45%" in shown(app.main_screen.header.lines)
        assert "Loading: reading weights" in shown(app.main_screen.step_panel.lines)
        assert app.focused is app.main_screen.prompt
        await pilot.press(*"Hi", "enter")
        await settle(pilot)
        assert engine.commands == [Submit(prompt="Hi", is_chat=True)]


async def test_over_the_engine_of_another_terminal_the_keys_are_heard_at_once() -> None:
    engine = FakeEngine(RUNNING)
    app = KvscopeApp(None, engine, open_timeline=lambda path: scenes.one_request(), owns_engine=False)
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await settle(pilot)
        await pilot.press("space")
        assert engine.commands == [Pause()]


async def test_the_recording_is_opened_when_the_engine_names_it() -> None:
    engine = FakeEngine(EngineStatus(phase="loading"))
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await settle(pilot)
        assert app.model.step == -1
        engine.status = RUNNING
        app._poll()
        await settle(pilot)
        assert app.model.step == 11


async def test_an_engine_that_is_gone_says_why_and_earlier_steps_stay() -> None:
    engine = FakeEngine(RUNNING)
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await settle(pilot)
        engine.status = EngineStatus(phase="failed", detail="RuntimeError: [bold]out[/] of memory")
        app._poll()
        await pilot.press("escape", "left")
        await settle(pilot)
        header = shown(app.main_screen.header.lines)
        assert "✖ ENGINE GONE" in header
        assert "RuntimeError: [bold]out[/] of memory" in header
        assert app.model.step == 10


async def test_pause_run_and_step_go_to_the_engine() -> None:
    engine = FakeEngine(RUNNING)
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await pilot.press("escape", "space")
        engine.status = EngineStatus(phase="paused", recording="scene.db", step=11)
        await pilot.press("full_stop", "space")
        await settle(pilot)
    assert engine.commands == [Pause(), Step(num_steps=1), Resume()]


async def test_an_abort_asks_first() -> None:
    engine = FakeEngine(RUNNING)
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await settle(pilot)
        await pilot.press("escape", "x", "escape", "x", "y")
        await settle(pilot)
    assert engine.commands == [Abort(request_id="req-1")]


@pytest.mark.parametrize(
    ("phase", "said"), [("paused", ["req-1 is aborted with the next step: . makes one"]), ("running", [])]
)
async def test_an_abort_that_waits_for_a_step_says_so(phase: EnginePhase, said: list[str]) -> None:
    engine = FakeEngine(EngineStatus(phase=phase, recording="scene.db", step=11))
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await settle(pilot)
        await pilot.press("escape", "x", "y")
        await settle(pilot)
        assert [note.message for note in app._notifications] == said


async def test_a_refusal_is_shown() -> None:
    engine = FakeEngine(RUNNING, refusal="the prompt has 9000 tokens, the model takes 2048: shorten it")
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await settle(pilot)
        app.open_prompt()
        await pilot.press(*"Hi", "enter")
        await settle(pilot)
        assert [note.message for note in app._notifications] == [
            "the prompt has 9000 tokens, the model takes 2048: shorten it"
        ]


@pytest.mark.parametrize(("answer", "when"), [("a", "now"), ("f", "idle")])
async def test_quitting_asks_what_becomes_of_unfinished_requests(answer: str, when: str) -> None:
    engine = FakeEngine(RUNNING)
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await pilot.press("escape", "q", "escape", "q", answer)
        await settle(pilot)
        assert app._exit
    assert [command.when for command in engine.commands if isinstance(command, Shutdown)] == [when]


async def test_a_paste_of_several_lines_is_sent_as_several_lines() -> None:
    engine = FakeEngine(RUNNING)
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        app.open_prompt()
        await settle(pilot)
        assert app.focused is app.main_screen.prompt
        app.main_screen.prompt.post_message(scenes.paste("one\ntwo"))
        await settle(pilot)
        await pilot.press("enter")
        await heard(pilot, engine, 1)
    assert engine.commands == [Submit(prompt="one\ntwo", is_chat=True)]


async def test_what_is_typed_ahead_of_a_busy_screen_arrives_as_it_was_typed() -> None:
    engine = FakeEngine(RUNNING)
    app = live_screen(engine, [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        app.open_prompt()
        await settle(pilot)
        for key in (
            *"onx",
            "backspace",
            "e",
            "enter",
            *"two",
            "enter",
            *"tree",
            "left",
            "left",
            "left",
            "h",
            "enter",
            "u",
        ):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await heard(pilot, engine, 3)
        await settle(pilot)
        assert app.main_screen.prompt.text == "u"
    assert engine.commands == [Submit(prompt=prompt, is_chat=True) for prompt in ("one", "two", "three")]


async def test_every_size_can_be_had_and_changed() -> None:
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=(120, 40)) as pilot:
        for size in ((200, 55), (80, 24), (59, 15), (20, 5), (250, 70), (120, 40)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            assert app.main_screen.header.size.width == size[0]


async def test_an_empty_prompt_leaves_the_arrows_to_time() -> None:
    app = live_screen(FakeEngine(RUNNING), [scenes.one_request()])
    async with app.run_test(size=(120, 40)) as pilot:
        app._poll()
        await settle(pilot)
        app.open_prompt()
        await pilot.press("left", "shift+left", "right")
        await settle(pilot)
        assert app.model.step == 1
        await pilot.press("a", "left")
        await settle(pilot)
        assert (app.model.step, app.main_screen.prompt.cursor_location) == (1, (0, 0))


async def test_w_answers_why_the_selected_request_waits_and_leaves_the_step_as_it_was() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("w")
        await app.workers.wait_for_complete()
        await settle(pilot)
        answer = shown(app.screen.query_one("#answer", LinesView).lines)
        assert "The pool is 4 blocks short. req-5 needs 8 blocks" in answer
        await pilot.press("escape")
        assert app.model.moment is not None
        assert (app.model.step, app.model.moment.state.step) == (6, 6)


async def test_a_step_is_copied_as_markdown_and_as_a_command() -> None:
    app = scenes.screen(scenes.full_pool())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("y")
        title, blank, fence, *lines = app.clipboard.splitlines()
        assert (title, blank, fence) == ("## Step 6 of scene.db", "", "```")
        assert (lines[0].startswith("ENGINE    "), lines[1].startswith("SETTINGS  num_gpu_blocks ")) == (True, True)
        assert any("req-5 not admitted: needs 8+1 blocks" in line for line in lines)
        selected = lines.index(f"REQUEST {app.model.selected_id}  waiting after step 6")
        assert lines.index("") < next(i for i, line in enumerate(lines) if line.startswith("STEP 6 ")) < selected
        await pilot.press("Y")
        assert app.clipboard == "kvscope show scene.db --step 6"


async def at_once(pilot: Pilot[None], *keys: str) -> None:
    """Presses keys as a terminal hands over a burst: none waits until the one before it has done its work."""
    for key in keys:
        pilot.app.post_message(Key(key, key if len(key) == 1 else {"colon": ":", "slash": "/"}.get(key)))


async def stands(pilot: Pilot[None], app: KvscopeApp, step: int) -> bool:
    """Waits until the cursor stands at the step, however busy the machine is."""
    for _ in range(1000):
        if app.model.step == step:
            return True
        await pilot.pause()
    return False


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        (("colon", "4", "0", "enter", "left"), 39),
        (("colon", "4", "0", "enter", "colon", "1", "2", "enter", "l", "l"), 14),
        (("colon", "4", "escape", "h"), 65),
        (("home", "slash", "r", "e", "q", "-", "3", "escape", "right"), 1),
        (("p", "left", "left"), 64),
    ],
    ids=["go, then a step", "go twice", "left", "search left", "a key that opens nothing here"],
)
async def test_keys_that_come_in_one_burst_go_where_the_keys_before_them_led(keys: tuple[str, ...], step: int) -> None:
    """`:40` typed by a script lost its digits, or left them to the place below."""
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await at_once(pilot, *keys)
        assert await stands(pilot, app, step)
        await settle(pilot)
        assert app.model.step == step
        assert isinstance(app.screen, MainScreen)


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        (("p", "left", "left"), 64),
        (("colon", "9", "9", "9", "enter", "backspace", "enter", "backspace", "enter", "left"), 8),
        (("escape", "colon", "escape", "left"), 65),
    ],
    ids=["a recording takes no prompt", "a wrong value stays in the line", "a line left empty"],
)
async def test_a_key_that_opens_nothing_holds_nobody_up(
    keys: tuple[str, ...], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second passed before the next key was heard: no clock may be needed to know that nothing opens."""
    monkeypatch.setattr("kvscope.tui.typed_ahead.LOOK_SECONDS", 1e6)
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await at_once(pilot, *keys)
        assert await stands(pilot, app, step)
        await settle(pilot)
        assert not app.typed_ahead.is_holding
        assert isinstance(app.screen, MainScreen)


async def test_what_is_wrong_with_a_place_to_go_is_told_whole() -> None:
    """The end of a long message was cut at the frame."""
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("colon", *"request-that-is-not-there", "enter")
        await settle(pilot)
        message = shown(app.screen.query_one("#message", LinesView).lines)
        assert message.split("\n") == [
            "there is no request 'request-that-is-not-there' here; a",
            "step is a number, a block is b57",
        ]
