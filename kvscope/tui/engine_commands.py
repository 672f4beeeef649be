"""What the screen asks of the engine, or does with a recording in its place: pause, run, step, prompt, abort, quit."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal

from textual.timer import Timer

from kvscope.analysis.text import visible
from kvscope.control import (
    Abort,
    Accepted,
    Command,
    Describe,
    Described,
    EngineStatus,
    Pause,
    Refused,
    Reply,
    Resume,
    Shutdown,
    Step,
)
from kvscope.events import EngineConfigured
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.modals import QuestionModal
from kvscope.tui.view.lines import Line, Span

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

SPEEDS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Steps a second of a replay that plays."""

SHUTDOWN_ANSWER_S = 0.5
"""How long leaving waits for the engine's answer."""

GONE = ("failed", "stopped")


class EngineCommands:
    """Commands over the control channel. An answer that is a refusal is shown; nothing here waits for the engine."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app
        self._play_timer: Timer | None = None

    @property
    def _model(self) -> ScreenModel:
        return self._app.model

    async def send(self, command: Command, *, says_refusal: bool = True) -> Reply | None:
        """Sends a command; a refusal is shown, unless the caller does that. None where there is no engine."""
        control = self._model.control
        if control is None:
            return None
        reply = await control.send(command)
        if isinstance(reply, Refused) and says_refusal:
            self._app.say(reply.message, is_error=True)
        self._app.note_status()
        return reply

    async def config(self) -> EngineConfigured | None:
        """Returns the engine's model and settings: as they are recorded, before the first step as it says itself."""
        if self._model.status is not None and self._model.config is not None:
            return self._model.config
        reply = await self.send(Describe())
        return reply.config if isinstance(reply, Described) else None

    async def pause_or_run(self) -> None:
        """Live: pauses or runs the engine. Replay: plays or stops, or runs to the next breakpoint if there is one."""
        status = self._model.status
        if self._app.breakpoints.leave():
            return
        if status is None:
            if self._model.is_playing:
                self.stop_playing()
            elif self._app.breakpoints.enabled:
                self._app.breakpoints.run(1)
            else:
                self._play()
        elif status.phase == "paused":
            self._model.move_to(self._model.last_step)
            await self.send(Resume())
        else:
            await self.send(Pause())

    async def step(self) -> None:
        """Live: one step of the engine, and to its end. Replay: one step on."""
        status = self._model.status
        if status is None:
            self._app.navigation.move_by(1)
            return
        if status.phase not in ("paused", *GONE):
            await self.send(Pause())
        await self.send(Step())
        self._model.move_to(self._model.last_step)
        self._app.show_soon()

    # Playing a recording

    def _play(self) -> None:
        if self._model.wanted_step >= self._model.last_step:
            self._model.move_to(self._model.first_step)
        self._model.is_playing = True
        self._start_timer()

    def stop_playing(self) -> None:
        self._model.is_playing = False
        if self._play_timer is not None:
            self._play_timer.stop()
            self._play_timer = None
        self._changed()

    def _start_timer(self) -> None:
        if self._play_timer is not None:
            self._play_timer.stop()
        self._play_timer = self._app.set_interval(1 / self._model.steps_per_second, self._play_step)
        self._changed()

    def _play_step(self) -> None:
        self._model.move_by(1)
        if self._model.wanted_step >= self._model.last_step:
            self.stop_playing()
        self._app.show_soon()

    def change_speed(self, *, is_faster: bool) -> None:
        place = SPEEDS.index(self._model.steps_per_second) + (1 if is_faster else -1)
        self._model.steps_per_second = SPEEDS[min(max(place, 0), len(SPEEDS) - 1)]
        if self._model.is_playing:
            self._start_timer()
        else:
            self._app.say(f"plays {self._model.steps_per_second} steps a second")

    def _changed(self) -> None:
        self._model.version += 1
        self._app.show_soon()

    # Aborting and leaving

    def ask_abort(self) -> None:
        """Asks whether the selected request is to be aborted."""
        request_id = self._model.selected_id
        if self._model.status is None:
            self._app.say("This is a recording: nothing can be aborted")
            return
        if request_id is None:
            return
        question: Line = (Span("Abort "), Span(visible(request_id), "bold"), Span("? Its blocks are given back."))

        async def answered(answer: str | None) -> None:
            if answer != "y" or not isinstance(await self.send(Abort(request_id=request_id)), Accepted):
                return
            status = self._model.status
            if status is not None and status.phase == "paused":
                step_key = self._app.keys.shown(".")
                self._app.say(f"{visible(request_id)} is aborted with the next step: {step_key} makes one")

        answers = {"y": "abort it"}
        self._app.push_screen(QuestionModal([question], answers, is_ascii=self._app.is_ascii), answered)

    async def ask_quit(self) -> None:
        """Leaves; with requests unfinished in an engine of this session's own it asks what becomes of them."""
        status = self._model.engine_status
        num_unfinished = 0 if status is None else num_unfinished_requests(status)
        if status is None or status.phase in GONE or not self._app.owns_engine:
            self._app.exit()
        elif not num_unfinished:
            await self._shut_down_and_exit("now")
        else:
            noun = "request is" if num_unfinished == 1 else "requests are"
            question: Line = (Span(f"{num_unfinished} {noun} unfinished.", "bold"),)
            answers = {"f": "quit, the engine finishes them and ends", "a": "abort them and quit"}

            async def answered(answer: str | None) -> None:
                if answer is not None:
                    await self._shut_down_and_exit("idle" if answer == "f" else "now")

            self._app.push_screen(QuestionModal([question], answers, is_ascii=self._app.is_ascii), answered)

    async def leave(self) -> None:
        """Leaves without a question, as nobody is there to answer: an engine of one's own finishes its requests."""
        status = self._model.engine_status
        if status is None or status.phase in GONE or not self._app.owns_engine:
            self._app.exit()
        else:
            await self._shut_down_and_exit("idle")

    async def _shut_down_and_exit(self, when: Literal["now", "idle"]) -> None:
        command = Shutdown(when=when)
        # An engine that loads or computes hears it later: the screen is left all the same.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.send(command), SHUTDOWN_ANSWER_S)
        self._app.exit()


def num_unfinished_requests(status: EngineStatus) -> int:
    """Returns how many requests an engine has not ended, those among them that are still to come."""
    return status.num_running + status.num_waiting + status.num_submitted
