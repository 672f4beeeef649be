"""Another engine in the place of the one that runs: its settings asked for, started beside it, taken when it stands.

What cannot start leaves everything as it was: the engine before goes on, its recording stays where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kvscope.analysis.setting_fields import SCHEDULER_NAMES, read_scheduler
from kvscope.analysis.setting_words import MODEL_HELP, SCHEDULER_HELP, value_text
from kvscope.control import EngineControl, EngineStarter, Shutdown
from kvscope.errors import KvscopeError, ModelError, RecordingError
from kvscope.events import EngineConfigured
from kvscope.replay.timeline import Timeline
from kvscope.tui.desk import OpenTimeline
from kvscope.tui.engine_commands import num_unfinished_requests
from kvscope.tui.screens.restart import RestartForm
from kvscope.tui.view.form import FormField

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

FIRST_NAMES = (
    *("num_gpu_blocks", "block_size", "max_num_batched_tokens", "max_num_seqs", "max_model_len"),
    *("enable_prefix_caching", "enable_chunked_prefill", "policy", "watermark", "batching"),
)
"""What is changed most stands first."""

CHOICES = {"policy": ("fcfs", "priority"), "batching": ("unified", "static", "exclusive")}
UNFINISHED = "unfinished"

LOOK_SECONDS = 0.05
END_SECONDS = 3.0
"""How long an engine that was told to end is waited for, so that its recording is closed."""
OPEN_LOOKS = 100
"""How often a recording that an engine has named is looked for."""

When = Literal["now", "idle"]


class Restart:
    """Asks for the settings, starts the new engine, and moves the screen to it."""

    def __init__(self, app: KvscopeApp, starter: EngineStarter | None, open_timeline: OpenTimeline | None) -> None:
        self._app = app
        self._starter = starter
        self._open_timeline = open_timeline

    def ask(self, changes: Mapping[str, Any] | None = None, *, then: Callable[[], None] = lambda: None) -> None:
        """Opens the settings of the engine that runs, with these changes; `then` is called when the new one stands."""
        self._app.recordings.show_engine()
        status = self._app.model.status
        if status is None:
            self._app.say("This is a recording: kvscope live starts an engine")
        elif self._starter is None:
            self._app.say("This engine was started by another terminal: it is restarted there")
        else:
            self._app.run_worker(self._ask(self._starter, changes or {}, then), group="restart", exclusive=True)

    async def _ask(self, starter: EngineStarter, changes: Mapping[str, Any], then: Callable[[], None]) -> None:
        status = self._app.model.engine_status
        is_set_up = status is not None and status.phase != "loading" and status.recording
        fields = self._fields(starter, changes, await self._app.engine.config() if is_set_up else None)
        self._app.push_screen(RestartForm(self, starter, fields, changes, then, is_ascii=self._app.is_ascii))

    def _fields(
        self, starter: EngineStarter, changes: Mapping[str, Any], config: EngineConfigured | None
    ) -> list[FormField]:
        """Returns a field for each setting: filled in where it was asked for, empty where it was chosen."""
        asked = {**starter.choices, **changes}
        names = (*FIRST_NAMES, *(name for name in SCHEDULER_NAMES if name not in FIRST_NAMES), *MODEL_HELP)
        fields = [_field(name, asked.get(name), _now(config, name)) for name in names]
        status = self._app.model.engine_status
        number = 0 if status is None else num_unfinished_requests(status)
        if number:
            meaning = f"what becomes of {number} unfinished request{'' if number == 1 else 's'} of the engine before"
            fields.append(FormField(name=UNFINISHED, text="abort", choices=("abort", "finish"), meaning=meaning))
        return fields

    def recording_path(self) -> Path | None:
        """Returns where the present engine's recording lies."""
        status = self._app.model.engine_status
        return Path(status.recording) if status is not None and status.recording else None

    async def begin(
        self, starter: EngineStarter, texts: Mapping[str, str], tell: Callable[[str, float | None], None]
    ) -> dict[str, str]:
        """Starts the engine of a form and moves to it; returns what is wrong, by field. `tell` hears how far it is.

        Cancelled, it ends the new engine and leaves the present one as it is.
        """
        found = read_scheduler({name: texts[name] for name in SCHEDULER_NAMES})
        when = texts.get(UNFINISHED, "").strip() or "abort"
        if when not in ("abort", "finish"):
            found.errors[UNFINISHED] = f"{UNFINISHED} must be abort or finish, not {when!r}"
        if not texts["model"].strip():
            found.errors["model"] = "model must be a name of `kvscope models list`, a folder, a GGUF file or a hub id"
        if found.errors:
            return found.errors
        model = {name: text for name in MODEL_HELP if (text := texts[name].strip())}
        control: EngineControl | None = None
        is_taken = False
        try:
            control = await starter.start({**model, **found.values})
            timeline = await self._recording_of(control, tell)
            await self._take(control, timeline, "idle" if when == "finish" else "now")
            is_taken = True
        except KvscopeError as error:
            return {_field_of(error): error.message}
        finally:
            if control is not None and not is_taken:
                self._app.run_worker(starter.discard(control), group="discard")
        return {}

    async def _recording_of(self, control: EngineControl, tell: Callable[[str, float | None], None]) -> Timeline:
        """Returns the recording of a new engine when it is ready. Raises what kept it from starting."""
        assert self._open_timeline is not None
        while (status := control.status).phase == "loading":
            tell(status.detail, status.progress)
            await asyncio.sleep(LOOK_SECONDS)
        if status.phase in ("failed", "stopped"):
            raise _StartFailed(status.detail or "the engine has ended")
        for _ in range(OPEN_LOOKS):
            try:
                return self._open_timeline(Path(status.recording))
            except RecordingError as error:
                why = error
                await asyncio.sleep(LOOK_SECONDS)
        raise why

    async def _take(self, control: EngineControl, timeline: Timeline, when: When) -> None:
        """Moves the screen to the new engine; the one before is told to end."""
        app, before = self._app, self._app.model.control
        app.model.control = control
        app.recordings.begin(timeline)
        app.breakpoints.tell_engine()
        app.note_status()
        app.show_soon()
        if before is not None:
            app.run_worker(_end(before, when), group="end")


async def _end(control: EngineControl, when: When) -> None:
    """Tells an engine to end; it closes its recording."""
    await control.send(Shutdown(when=when))
    for _ in range(int(END_SECONDS / LOOK_SECONDS) if when == "now" else 0):
        if control.status.phase in ("stopped", "failed"):
            break
        await asyncio.sleep(LOOK_SECONDS)
    await control.close()


class _StartFailed(KvscopeError):
    """A new engine has ended while it loaded."""


def _field(name: str, asked: Any, now: Any) -> FormField:
    is_choice = isinstance(now, bool)
    meaning = SCHEDULER_HELP.get(name) or MODEL_HELP[name]
    return FormField(
        name=name,
        text=value_text(asked),
        default=value_text(now) or "none",
        meaning=meaning.rstrip("."),
        choices=("true", "false") if is_choice else CHOICES.get(name, ()),
    )


def _now(config: EngineConfigured | None, name: str) -> Any:
    """Returns what the present engine has."""
    if config is None:
        return None
    if name in ("model", "dtype", "device"):
        return getattr(config, name)
    return {**config.settings, "num_gpu_blocks": config.num_gpu_blocks, "block_size": config.block_size}.get(name)


def _field_of(error: KvscopeError) -> str:
    """Returns the field that an error is about, as far as that can be known: a setting, or the one it names first."""
    setting = getattr(error, "setting", "")
    if setting:
        return str(setting)
    if isinstance(error, ModelError):
        return "model"
    words = error.message.replace("--", "").replace("-", "_").split()
    names = {*SCHEDULER_NAMES, *MODEL_HELP}
    return next((word.strip(":,()") for word in words if word.strip(":,()") in names), "")
