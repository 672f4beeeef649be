"""Driving an engine by keys: prompts of several lines, several at once, sampling, workloads, restarts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from kvscope.control import (
    Abort,
    Command,
    EngineControl,
    EngineStatus,
    Pause,
    SetStopConditions,
    Shutdown,
    Step,
    Submit,
    SubmitPlan,
    SubmitTogether,
)
from kvscope.errors import UsageError
from kvscope.replay import MemoryTimeline
from kvscope.tui.app import KvscopeApp
from kvscope.tui.config import parse_config
from kvscope.tui.screens.form import FieldInput, FormModal
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.modals import TextModal
from kvscope.tui.screens.restart import RestartForm
from kvscope.tui.screens.workloads import WorkloadForm, WorkloadMenu
from kvscope.tui.widgets.lines_view import LinesView
from tests.tui import scenes
from tests.tui.scenes import FakeEngine, live_screen, settle
from tests.tui.test_keys import heard, shown

IDLE = EngineStatus(
    phase="idle", recording="scene.db", step=11, sampling={"temperature": 0.0, "max_tokens": 256}, num_running=0
)
PAUSED = EngineStatus(phase="paused", recording="scene.db", step=11)


async def opened(pilot: Pilot[None]) -> KvscopeApp:
    """Returns the app with its recording open and the prompt line focused."""
    app = pilot.app
    assert isinstance(app, KvscopeApp)
    app._poll()
    await settle(pilot)
    app.open_prompt()
    await settle(pilot)
    return app


async def until(pilot: Pilot[None], is_met: Callable[[], bool]) -> None:
    """Waits, however busy the machine is."""
    for _ in range(2000):
        if is_met():
            return
        await pilot.pause(0.005)
    raise AssertionError("it did not come")


def field(app: KvscopeApp, name: str) -> FieldInput:
    return next(line for line in app.screen.query(FieldInput) if line.field.name == name)


def below(app: KvscopeApp) -> str:
    return shown(app.screen.query_one("#form-below", LinesView).lines)


async def fill(pilot: Pilot[None], name: str, text: str) -> None:
    """Puts a text into a field of the form that is open."""
    app = pilot.app
    assert isinstance(app, KvscopeApp)
    line = field(app, name)
    line.value = text
    app.screen.set_focus(line)
    await pilot.pause()


# The prompt line


async def test_a_prompt_has_several_lines_grows_with_them_and_comes_back_whole() -> None:
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        prompt = app.main_screen.prompt
        await pilot.press(*"one", "ctrl+n", *"two", "ctrl+n", "ctrl+n", *"four")
        await settle(pilot)
        assert (prompt.text, prompt.size.height) == ("one\ntwo\n\nfour", 4)
        await pilot.press("enter")
        await heard(pilot, engine, 1)
        await settle(pilot)
        assert (prompt.text, prompt.size.height) == ("", 1)
        await pilot.press(*"draft", "up")
        assert prompt.text == "one\ntwo\n\nfour"
        await pilot.press("up", "up", "down", "down", "down", "down")
        assert prompt.text == "draft"
    assert engine.commands == [Submit(prompt="one\ntwo\n\nfour")]


async def test_a_long_prompt_takes_a_quarter_of_the_screen_and_scrolls() -> None:
    async with live_screen(FakeEngine(IDLE), [scenes.one_request()]).run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        app.main_screen.prompt.post_message(scenes.paste("\r".join(f"line {number}" for number in range(30))))
        await settle(pilot)
        assert app.main_screen.prompt.size.height == 6
        assert app.main_screen.prompt.text.splitlines() == [f"line {number}" for number in range(30)]


async def test_a_prompt_that_is_left_takes_one_row_and_one_key_empties_it() -> None:
    async with live_screen(FakeEngine(IDLE), [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        prompt = app.main_screen.prompt
        await pilot.press(*"one", "ctrl+n", *"two")
        await settle(pilot)
        assert prompt.size.height == 2
        await pilot.press("escape")
        await settle(pilot)
        assert (prompt.text, prompt.size.height) == ("one\ntwo", 1)
        await pilot.press("p")
        await settle(pilot)
        assert prompt.size.height == 2
        await pilot.press("ctrl+u")
        await settle(pilot)
        assert (prompt.text, prompt.size.height) == ("", 1)
        await pilot.press("up")
        assert prompt.text == "one\ntwo"


async def test_what_a_terminal_would_obey_is_shown_in_the_prompt_and_sent_as_it_is() -> None:
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        app.main_screen.prompt.post_message(scenes.paste("[red]a\x1b[31mb\u202ec"))
        await settle(pilot)
        assert app.main_screen.prompt.get_line(0).plain == "[red]a␛[31mb\N{REPLACEMENT CHARACTER}c"
        await pilot.press("enter")
        await heard(pilot, engine, 1)
    assert engine.commands == [Submit(prompt="[red]a\x1b[31mb\u202ec")]


async def test_after_a_prompt_one_can_look_at_once() -> None:
    """Arrows are time, space pauses, a full stop steps while paused; a second enter goes to the list."""
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press(*"Hi", "enter", "left", "left", "space")
        await heard(pilot, engine, 2)
        engine.status = PAUSED
        await pilot.press("full_stop")
        await heard(pilot, engine, 3)
        await settle(pilot)
        assert app.focused is app.main_screen.prompt
        await pilot.press("home")
        await settle(pilot)
        assert app.model.step == 0
        await pilot.press("enter")
        await settle(pilot)
        assert app.main_screen.queues_panel.has_focus
    assert engine.commands == [Submit(prompt="Hi"), Pause(), Step()]


async def test_a_raw_prompt_may_begin_with_a_blank_and_a_prompt_with_a_full_stop() -> None:
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("ctrl+t", "space", *"Paris", "enter")
        await heard(pilot, engine, 1)
        await settle(pilot)
        assert shown(app.main_screen.query_one("#prompt-mode", LinesView).lines) == " raw ›"
        await pilot.press("ctrl+t", "full_stop", "a", "enter")
        await heard(pilot, engine, 2)
    assert engine.commands == [Submit(prompt=" Paris", is_chat=False), Submit(prompt=".a")]


async def test_a_prompt_that_is_refused_comes_back_unless_another_is_typed() -> None:
    engine = FakeEngine(IDLE, refusal="the prompt has 9000 tokens, max_model_len (2048) allows 2047")
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press(*"too long", "enter")
        await heard(pilot, engine, 1)
        await settle(pilot)
        assert app.main_screen.prompt.text == "too long"
        app.main_screen.prompt.bring_back("other")
        assert app.main_screen.prompt.text == "too long"


# What goes with every prompt


async def test_sampling_is_set_by_name_and_kept_for_the_next_prompts() -> None:
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        settings = app.main_screen.query_one("#prompt-settings", LinesView)
        assert shown(settings.lines) == " temperature 0 · max_tokens 256"
        await pilot.press("ctrl+o")
        await settle(pilot)
        assert field(app, "max_tokens").placeholder == "256"
        await pilot.press("down", "down", "down", *"32", "down", *"0.7", "enter")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await settle(pilot)
        assert shown(settings.lines) == " temperature 0.7 · max_tokens 32"
        await pilot.press("a", "enter", "b", "enter")
        await heard(pilot, engine, 2)
    sampling = {"max_tokens": 32, "temperature": 0.7}
    assert engine.commands == [Submit(prompt=text, sampling=sampling) for text in ("a", "b")]


async def test_what_is_wrong_is_said_at_its_field_and_nothing_typed_is_lost() -> None:
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("ctrl+o")
        await settle(pilot)
        await fill(pilot, "top_p", "2")
        await fill(pilot, "copies", "0")
        await fill(pilot, "seed", "7")
        await pilot.press("enter")
        await until(pilot, lambda: "copies must be from 1 to 512, not 0" in below(app))
        assert app.focused is field(app, "copies")
        beside = shown(
            [line for view in app.screen.query(".form-row LinesView").results(LinesView) for line in view.lines]
        )
        assert "✗ top_p must be above 0 and at most 1, not 2.0" in beside
        assert field(app, "seed").value == "7"
        assert app.prompting.settings.sampling == {}
        await pilot.press("backspace")
        await fill(pilot, "top_p", "1")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        assert app.prompting.settings.sampling == {"top_p": 1.0, "seed": 7}
        await pilot.press("ctrl+o")
        await settle(pilot)
        assert field(app, "top_p").value == "1"


async def test_keys_in_a_form_that_come_in_one_burst_go_to_the_fields_they_were_typed_for() -> None:
    """Backspaces were done behind the digits typed after them, and a field's letters went to the one before."""
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("ctrl+o")
        await settle(pilot)
        for key in (*["down"] * 3, "1", "2", "backspace", "3", "down", "5", "down", "down", "9"):
            app.post_message(scenes.key(key))
        await until(pilot, lambda: field(app, "top_k").value == "9")
        values = [field(app, name).value for name in ("prompt", "max_tokens", "temperature", "top_p")]
    assert values == ["chat", "13", "5", ""]


async def test_a_choice_goes_on_with_space_and_system_priority_and_salt_go_along() -> None:
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("escape", "P")
        await settle(pilot)
        await pilot.press("space")
        assert field(app, "prompt").value == "raw"
        await pilot.press("space")
        await fill(pilot, "system", "Be short.")
        await fill(pilot, "priority", "-2")
        await fill(pilot, "cache_salt", "mine")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await pilot.press("p", "a", "enter")
        await heard(pilot, engine, 1)
    assert engine.commands == [Submit(prompt="a", system="Be short.", priority=-2, cache_salt="mine")]


# Several at once


async def test_lines_of_a_file_become_prompts_of_one_step_each_so_many_times(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("one\n\ntwo\n")
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        app.prompting.settings.copies, app.prompting.settings.split = 2, "lines"
        await pilot.press("ctrl+f")
        await settle(pilot)
        await pilot.press(*str(tmp_path / "no.txt"), "enter")
        await settle(pilot)
        assert "No such file or directory" in shown(app.screen.query_one("#message", LinesView).lines)
        await pilot.press(*["backspace"] * len("no.txt"), *"prompts.txt", "enter")
        await until(pilot, lambda: app.main_screen.prompt.text == "one\n\ntwo")
        await settle(pilot)
        assert shown(app.main_screen.query_one("#prompt-settings", LinesView).lines).startswith(" 2 × one of each line")
        await pilot.press("enter")
        await heard(pilot, engine, 1)
    one, two = Submit(prompt="one"), Submit(prompt="two")
    assert engine.commands == [SubmitTogether(submissions=(one, one, two, two))]


async def test_the_prompts_own_keys_are_in_the_help_and_in_the_palette_as_they_are_configured() -> None:
    """What other places have on ↑ and esc changes nothing here."""
    engine = FakeEngine(IDLE)
    keys = 'move.up = "f6"\nleave.up = "f7"\nprompt.settings = "f8"\nprompt.file = "ctrl+l"\nprompt.new_line = "ctrl+e"'
    config = parse_config(f"[keys]\n{keys}", "c.toml")
    screen = KvscopeApp(None, engine, open_timeline=lambda path: scenes.one_request(), config=config)
    async with screen.run_test(size=(120, 60)) as pilot:
        app = await opened(pilot)
        assert " ".join(shown(app.main_screen.footer.lines).split()) == (
            "⏎ send ctrl+e new line ↑ earlier f8 settings ctrl+t chat/raw ctrl+l file esc keys"
        )
        await pilot.press("a", "ctrl+e", "b", "f8")
        await settle(pilot)
        assert (app.main_screen.prompt.text, field(app, "copies").value) == ("a\nb", "1")
        await pilot.press("escape")
        await settle(pilot)
        palette = {command.title: command.help for command in app.get_system_commands(app.screen)}
        assert palette["Prompts as chat, or raw"] == "key ctrl+t in the prompt"
        assert palette["A file into the prompt"] == "key ctrl+l in the prompt"
        await pilot.press("f7", "escape")
        assert "f6 previous" not in shown(app.main_screen.footer.lines)
        await pilot.press("question_mark")
        await settle(pilot)
        assert isinstance(app.screen, TextModal)
        told = " ".join(shown(app.screen._lines).split())
        assert "ctrl+t chat or raw" in told
        assert "ctrl+l take a file" in told
        assert "f8 what goes with every prompt" in told
        await pilot.press("escape", "W")
        await settle(pilot)
        assert "j f6 · esc closes" in shown(app.screen.query_one("#workloads", LinesView).lines)


# Workloads


async def test_a_workload_is_chosen_rehearsed_and_sent() -> None:
    engine = FakeEngine(IDLE)
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("escape", "W")
        await settle(pilot)
        assert isinstance(app.screen, WorkloadMenu)
        await pilot.press("j", "j", "k", "enter")
        await until(pilot, lambda: isinstance(app.screen, WorkloadForm) and "Rehearsed" in below(app))
        assert shown(app.screen.query_one("#form-title", LinesView).lines) == "LONG PREFILL AMONG DECODERS"
        await pilot.press("escape", "W", "1")
        await until(pilot, lambda: isinstance(app.screen, WorkloadForm) and "Rehearsed" in below(app))
        assert "prompt tokens hit" in below(app)
        await fill(pilot, "num_requests", "1")
        await until(pilot, lambda: "✗ at least 2, not 1" in below(app))
        await fill(pilot, "num_requests", "3")
        await until(pilot, lambda: "Rehearsed" in below(app))
        await pilot.press("enter")
        await heard(pilot, engine, 1)
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await pilot.press("W", "1")
        await until(pilot, lambda: isinstance(app.screen, WorkloadForm))
        assert (field(app, "num_requests").value, field(app, "seed").value) == ("3", "1")
    (plan,) = engine.commands
    assert isinstance(plan, SubmitPlan)
    assert [request.request_id for request in plan.requests] == ["shared-1", "shared-2", "shared-3"]
    assert plan.seed == 1


async def test_a_refused_workload_says_why_and_keeps_its_figures() -> None:
    engine = FakeEngine(IDLE, refusal="the model is not loaded yet: wait until it is")
    async with live_screen(engine, [scenes.one_request()]).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("escape", "W", "4")
        await until(pilot, lambda: isinstance(app.screen, WorkloadForm) and "Rehearsed" in below(app))
        await fill(pilot, "num_requests", "5")
        await pilot.press("enter")
        await until(pilot, lambda: "✗ the model is not loaded yet: wait until it is" in below(app))
        assert field(app, "num_requests").value == "5"


# Restarts


class FakeStarter:
    """Starts the engines that it is given, and writes down with what."""

    def __init__(self, engines: Mapping[int, FakeEngine]) -> None:
        """By their numbers of blocks; another number is refused at once."""
        self._engines = engines
        self.asked: list[dict[str, Any]] = []
        self.discarded: list[EngineControl] = []
        self.choices: dict[str, Any] = {"model": "toy", "num_gpu_blocks": 33}

    async def start(self, choices: Mapping[str, Any]) -> EngineControl:
        self.asked.append(dict(choices))
        if choices["num_gpu_blocks"] not in self._engines:
            raise UsageError("num_gpu_blocks 7 is a number that this engine does not like: take 40")
        return self._engines[choices["num_gpu_blocks"]]

    async def discard(self, control: EngineControl) -> None:
        self.discarded.append(control)


def another_recording() -> MemoryTimeline:
    timeline = MemoryTimeline("new.db")
    for step, events in scenes.preempting_run().sink.steps:
        timeline.write_step(step, events)
    return timeline


def restartable(engine: FakeEngine, starter: FakeStarter) -> KvscopeApp:
    recordings = {"scene.db": scenes.one_request(), "new.db": another_recording()}
    return KvscopeApp(None, engine, open_timeline=lambda path: recordings[path.name], starter=starter)


def told(engine: FakeEngine, kind: type[Command]) -> list[Command]:
    return [command for command in engine.commands if isinstance(command, kind)]


async def test_a_restart_takes_the_new_engine_ends_the_old_one_and_keeps_its_recording() -> None:
    old = FakeEngine(EngineStatus(phase="running", recording="scene.db", step=11, num_running=1))
    new = FakeEngine(EngineStatus(phase="idle", recording="new.db", step=66))
    starter = FakeStarter({40: new})
    async with restartable(old, starter).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("escape", "R")
        await until(pilot, lambda: isinstance(app.screen, RestartForm))
        await settle(pilot)
        assert (field(app, "num_gpu_blocks").value, field(app, "block_size").placeholder) == ("33", "4")
        assert "The recording so far stays open (a goes back to it)" in below(app)
        await fill(pilot, "num_gpu_blocks", "40")
        await fill(pilot, "policy", "priority")
        await fill(pilot, "unfinished", "finish")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await settle(pilot)
        assert (app.model.step, app.model.control) == (66, new)
        assert starter.asked == [{"model": "toy", "num_gpu_blocks": 40, "policy": "priority"}]
        await until(pilot, lambda: told(old, Shutdown) == [Shutdown(when="idle")])
        await pilot.press("a")
        await settle(pilot)
        assert app.model.timeline is not None
        assert (app.model.timeline.path.name, app.model.step) == ("scene.db", 11)
        assert "■ REPLAY" in shown(app.main_screen.header.lines)
        await pilot.press("x")
        assert told(new, Abort) == []
        await pilot.press("p", "b", "enter")
        await until(pilot, lambda: told(new, Submit) == [Submit(prompt="b")])
        await settle(pilot)
        assert app.model.timeline.path.name == "new.db"
    assert starter.discarded == []


async def test_an_engine_that_cannot_start_leaves_the_old_one_as_it_is() -> None:
    old = FakeEngine(IDLE)
    broken = FakeEngine(EngineStatus(phase="failed", detail="41 blocks need 9 MiB: set --num-gpu-blocks to 40"))
    starter = FakeStarter({41: broken})
    async with restartable(old, starter).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("escape", "R")
        await until(pilot, lambda: isinstance(app.screen, RestartForm))
        await fill(pilot, "watermark", "2")
        await pilot.press("enter")
        await until(pilot, lambda: "✗ watermark must be at least 0 and below 1, not 2.0" in below(app))
        assert starter.asked == []
        await fill(pilot, "watermark", "0.5")
        await fill(pilot, "num_gpu_blocks", "7")
        await pilot.press("enter")
        await until(pilot, lambda: "is a number that this engine does not like" in below(app))
        await fill(pilot, "num_gpu_blocks", "41")
        await pilot.press("enter")
        await until(pilot, lambda: "✗ 41 blocks need 9 MiB" in below(app))
        assert app.focused is field(app, "num_gpu_blocks")
        assert field(app, "watermark").value == "0.5"
        await until(pilot, lambda: starter.discarded == [broken])
        await pilot.press("escape")
        await settle(pilot)
        assert (app.model.control, app.model.step, told(old, Shutdown)) == (old, 11, [])


async def test_a_start_can_be_left_while_it_loads() -> None:
    old, slow = FakeEngine(IDLE), FakeEngine(EngineStatus(phase="loading", detail="reading weights", progress=0.25))
    starter = FakeStarter({33: slow})
    async with restartable(old, starter).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("escape", "R")
        await until(pilot, lambda: isinstance(app.screen, RestartForm))
        await pilot.press("enter")
        await until(pilot, lambda: "… reading weights 25% · the engine before runs on" in below(app))
        await pilot.press("escape")
        await until(pilot, lambda: starter.discarded == [slow])
        await settle(pilot)
        assert isinstance(app.screen, FormModal)
        assert (app.model.control, told(old, Shutdown)) == (old, [])


async def test_breakpoints_are_the_new_engines_too() -> None:
    new = FakeEngine(EngineStatus(phase="idle", recording="new.db", step=66))
    async with restartable(FakeEngine(IDLE), FakeStarter({33: new})).run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        app.breakpoints.add("preempted")
        await pilot.press("escape", "R")
        await until(pilot, lambda: isinstance(app.screen, RestartForm))
        await pilot.press("enter")
        await until(pilot, lambda: len(told(new, SetStopConditions)) == 1)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("R", "This is a recording: kvscope live starts an engine"),
        ("W", "This is a recording: there is no engine to send a workload to"),
        ("P", "This is a recording: there is no engine to send a prompt to"),
    ],
)
async def test_a_recording_has_no_engine_to_drive(key: str, message: str) -> None:
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press(key)
        await settle(pilot)
        assert [note.message for note in app._notifications] == [message]
