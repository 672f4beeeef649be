"""Runs an engine on a thread of its own and obeys the commands of `kvscope.control`.

Commands come from any thread and are answered at once, whatever the engine is computing: what they change is looked at
between two steps. Knows no sockets and no processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, assert_never

from kvscope import control
from kvscope.analysis.setting_words import sampling_in_use
from kvscope.control import Accepted, EngineStatus, Refused, Reply
from kvscope.engine.llm_engine import LLMEngine, StepReport
from kvscope.engine.scheduling.request import SamplingParams
from kvscope.engine.settings import SettingError
from kvscope.errors import KvscopeError, ModelError, UsageError
from kvscope.session.build import BuiltEngine, ReportProgress
from kvscope.session.engine_look import EngineLook, EngineLooks
from kvscope.session.intake import Intake
from kvscope.session.stop_conditions import StopConditions


class EngineLoop:
    """`start` it, `handle` commands, and let `on_change` know when `status` is worth telling."""

    def __init__(
        self,
        load: Callable[[ReportProgress], BuiltEngine],
        on_change: Callable[[], None],
        *,
        recording: str = "",
    ) -> None:
        """`on_change` is called on any thread, at the end of each step and at every change of phase."""
        self._load = load
        self._on_change = on_change
        self._recording = recording
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="kvscope-engine")
        # Guarded by `_changed`:
        self._loaded: BuiltEngine | None = None
        self._sampling: dict[str, Any] = {}
        self._loading: tuple[str, float | None] = ("starting", None)
        self._is_stepping = False
        self._is_paused = False
        self._pause_detail = ""
        self._num_steps_allowed = 0
        self._intake = Intake()
        self._conditions = StopConditions(())
        self._ending: control.Shutdown | None = None
        self._failure: tuple[str, str] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begins to load the engine, and runs it from then on."""
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Waits until the recording is closed after a `Shutdown` or a failure."""
        self._thread.join(timeout_s)

    @property
    def is_told_to_end(self) -> bool:
        """True once a `Shutdown` came, also after a failure."""
        return self._ending is not None

    @property
    def is_closed(self) -> bool:
        """True when there will be no more steps and the recording is closed."""
        return self._is_closed

    @property
    def is_quiet(self) -> bool:
        """True when nothing will happen until a command comes."""
        with self._changed:
            return self._phase() in ("idle", "paused", "stopped", "failed")

    @property
    def status(self) -> EngineStatus:
        """The condition at this moment."""
        with self._changed:
            phase = self._phase()
            engine = self._loaded.engine if self._loaded else None
            return EngineStatus(
                phase=phase,
                detail=self._detail(phase),
                progress=self._loading[1] if phase == "loading" else None,
                recording=self._recording if self._loaded else "",
                step=engine.step_index if engine else -1,
                num_running=engine.num_running if engine else 0,
                num_waiting=engine.num_waiting if engine else 0,
                num_submitted=self._intake.num_submitted,
                error=self._failure[1] if self._failure else "",
                sampling=self._sampling,
                recommended_sampling=dict(self._loaded.recommended_sampling) if self._loaded else {},
            )

    def handle(self, command: control.Command) -> Reply:
        """Obeys a command. Never raises; `Refused` says why not."""
        try:
            with self._changed:
                try:
                    return self._obey(command)
                finally:
                    self._changed.notify_all()  # a refusal, too, is something to record
        except KvscopeError as error:
            return Refused(message=error.message, setting=error.setting if isinstance(error, SettingError) else "")
        finally:
            if not isinstance(command, control.GetStatus | control.Describe):
                self._on_change()

    def run_unwatched(self) -> None:
        """Nobody watches any more: what was paused goes on, and no condition pauses it again."""
        with self._changed:
            self._is_paused = False
            self._conditions = StopConditions(())
            self._changed.notify_all()

    def _obey(self, command: control.Command) -> Reply:
        if isinstance(command, control.GetStatus):
            return self.status
        if isinstance(command, control.Describe):
            if self._loaded is None:
                return Refused(message="the model is not loaded yet: wait until it is")
            return control.Described(config=self._loaded.engine.configured())
        is_finishing = self._ending is not None and self._ending.when == "idle" and not self._is_closed
        if is_finishing and isinstance(command, control.Abort):
            return self._abort(command.request_id)
        if self._is_closed or self._failure or self._ending:
            if isinstance(command, control.Shutdown):
                self._ending = command
                return Accepted()
            why = f"it failed: {self._failure[0]}" if self._failure else "it is shutting down"
            return Refused(message=f"the engine takes no commands any more, {why}")
        match command:
            case control.Submit():
                return Accepted(request_id=self._intake.submit([command])[0])
            case control.SubmitTogether() | control.SubmitPlan():
                ids = (
                    self._intake.submit_plan(command)
                    if isinstance(command, control.SubmitPlan)
                    else self._intake.submit(command.submissions)
                )
                return Accepted(request_id=ids[0], request_ids=tuple(ids))
            case control.Abort():
                return self._abort(command.request_id)
            case control.Pause():
                self._pause("paused")
            case control.Step():
                if command.num_steps < 1:
                    return Refused(message=f"the number of steps must be at least 1, not {command.num_steps}")
                if self._loaded and not self._intake.has_work:
                    return Refused(message="there is nothing to run: submit a prompt first")
                num_steps_due = self._num_steps_allowed if self._is_paused else 0
                self._pause("stepped")
                self._num_steps_allowed = num_steps_due + command.num_steps
            case control.Resume():
                self._is_paused = False
                self._num_steps_allowed = 0
            case control.SetStopConditions():
                self._conditions = StopConditions(command.conditions, self._conditions)
            case control.Shutdown():
                self._ending = command
            case _:
                assert_never(command)
        return Accepted()

    def _abort(self, request_id: str) -> Reply:
        if self._intake.abort(request_id):
            return Accepted()
        return Refused(message=f"no unfinished request is called {request_id}")

    def _pause(self, detail: str) -> None:
        self._is_paused = True
        self._pause_detail = detail
        self._num_steps_allowed = 0

    def _phase(self) -> control.EnginePhase:
        if self._failure:
            return "failed"
        if self._is_closed:
            return "stopped"
        if self._loaded is None:
            return "loading"
        if self._is_stepping:
            return "running"
        if self._is_paused and not self._num_steps_allowed:
            return "paused"
        return "running" if self._intake.may_go_on else "idle"

    def _detail(self, phase: control.EnginePhase) -> str:
        match phase:
            case "failed":
                return self._failure[0] if self._failure else ""
            case "loading":
                return self._loading[0]
            case "paused":
                return self._pause_detail
            case "idle" if self._loaded and (stuck := self._loaded.engine.stuck):
                return f"stuck: {stuck.request_id} can never go on"
            case _:
                return ""

    # From here on everything runs on the engine's thread.

    def _run(self) -> None:
        try:
            loaded = self._load(self._report_loading)
            with contextlib.closing(loaded):
                self._begin(loaded)
                self._make_steps(loaded.engine)
        except Exception as error:
            self._fail(error)
        with self._changed:
            self._is_closed = True
        self._on_change()

    def _make_steps(self, engine: LLMEngine) -> None:
        looks = EngineLooks(engine.scheduler)
        while self._wait_for_work():
            report = engine.step()
            self._after_step(engine, report, looks.after(report))
        if engine.has_work:
            engine.abort_all()
            engine.step()

    def _report_loading(self, what: str, progress: float | None) -> None:
        with self._changed:
            self._loading = (what, progress)
        self._on_change()

    def _begin(self, loaded: BuiltEngine) -> None:
        used = sampling_in_use(dataclasses.asdict(loaded.sampling), dataclasses.asdict(SamplingParams()))
        with self._changed:
            self._loaded, self._sampling = loaded, used
            self._intake.begin(loaded.engine)
        self._on_change()

    def _wait_for_work(self) -> bool:
        """Returns True when a step is to be made, False when the engine is to end."""
        with self._changed:
            while not self._ending and not self._may_step():
                self._changed.wait()
            is_finishing = self._ending is not None and self._ending.when == "idle"
            if self._ending is None or (is_finishing and self._intake.may_go_on):
                self._intake.submit_due()
                self._is_stepping = True
                self._num_steps_allowed = max(self._num_steps_allowed - 1, 0)
            return self._is_stepping

    def _may_step(self) -> bool:
        if not self._is_paused:
            return self._intake.may_go_on
        return self._intake.has_work and self._num_steps_allowed > 0

    def _after_step(self, engine: LLMEngine, report: StepReport, look: EngineLook) -> None:
        with self._changed:
            self._is_stepping = False
            if not self._intake.has_work:
                self._num_steps_allowed = 0
            is_stalled = not report.num_scheduled_tokens and engine.num_waiting > 0
            reason = self._conditions.holding(look, is_stalled=is_stalled)
            if reason is not None:
                self._pause(reason)
        self._on_change()

    def _fail(self, error: Exception) -> None:
        message = error.message if isinstance(error, KvscopeError) else f"{type(error).__name__}: {error}"
        # Where a user can put it right by what the message says, the way through the code says nothing more.
        is_explained = isinstance(error, UsageError | ModelError)
        text = "" if is_explained else "".join(traceback.format_exception(error))
        with self._changed:
            self._failure = self._failure or (message.splitlines()[0], text)
        with contextlib.suppress(OSError):  # the disk that has no room for a recording has none for a log either
            print(text or message, file=sys.stderr, flush=True)
        self._on_change()
