"""Starts engines for one screen, one after the other: each with settings of its own, each into a file of its own.

The engine that ran before is left alone; whoever asked for the new one ends it when the new one stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kvscope.analysis.setting_words import MODEL_HELP
from kvscope.control import EngineControl, Shutdown
from kvscope.control_client import ControlClient
from kvscope.session.build import check_model_is_there
from kvscope.session.options import EngineOptions
from kvscope.session.recordings_folder import claim_recording_path, new_recording_path
from kvscope.session.spawn import SpawnedEngine, spawn_engine

MODEL_NAMES = tuple(MODEL_HELP)

ANSWER_S = 0.5
"""How long an engine that is not wanted is asked to end; one that does not hear ends by itself, being alone."""


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """An engine process of this screen."""

    options: EngineOptions
    spawned: SpawnedEngine
    client: ControlClient

    @property
    def recording(self) -> Path:
        assert self.options.recording is not None
        return Path(self.options.recording)


class EngineStarter:
    """Implements `control.EngineStarter`."""

    def __init__(self, options: EngineOptions) -> None:
        """`options` are those of the first engine; where its recording goes is claimed already."""
        self.started: list[StartedEngine] = []
        self._start(options)

    @property
    def current(self) -> StartedEngine:
        """The engine that was started last and is wanted."""
        return self.started[-1]

    @property
    def choices(self) -> dict[str, Any]:
        """What the current engine was asked for: model, dtype, device, settings by their vLLM names."""
        options = self.current.options
        model = {name: value for name in MODEL_NAMES if (value := getattr(options, name)) is not None}
        return {**model, **options.settings}

    async def start(self, choices: Mapping[str, Any]) -> EngineControl:
        """Starts an engine with these choices, instead of those before; sampling settings stay.

        Raises:
            KvscopeError: it cannot be started, as far as can be seen at once. The rest shows in the control's status.
        """
        return await asyncio.to_thread(self._start_chosen, choices)

    def _start_chosen(self, choices: Mapping[str, Any]) -> EngineControl:
        before = self.current.options
        model = {name: choices.get(name, getattr(EngineOptions(), name)) for name in MODEL_NAMES}
        options = msgspec.structs.replace(
            before,
            **model,
            settings={name: value for name, value in choices.items() if name not in MODEL_NAMES},
            recording=str(_next_path(self.current.recording, str(model["model"]))),
            replaces_recording=False,
        )
        check_model_is_there(options.model)
        return self._start(options)

    def _start(self, options: EngineOptions) -> ControlClient:
        spawned = spawn_engine(options)
        client = ControlClient(spawned.socket_path, log_path=spawned.log_path).start()
        self.started.append(StartedEngine(options, spawned, client))
        return client

    async def discard(self, control: EngineControl) -> None:
        """Ends an engine that is not wanted after all, and forgets it; a recording without a step is removed."""
        engine = next(engine for engine in self.started if engine.client is control)
        self.started.remove(engine)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(control.send(Shutdown()), ANSWER_S)
        await control.close()
        await asyncio.to_thread(_clear_away, engine)


def _next_path(path: Path, model: str) -> Path:
    """Returns a new file: in the recordings folder named after the moment, else beside the first with a number."""
    named = new_recording_path(model, datetime.datetime.now())
    if path.parent != named.parent.absolute():
        number = 2
        while (named := path.with_name(f"{path.stem}-{number}{path.suffix}")).exists():
            number += 1
    return claim_recording_path(named, may_replace=False)


def _clear_away(engine: StartedEngine) -> None:
    """Waits for a discarded engine's end, and removes what it has written before its first step."""
    try:
        engine.spawned.process.wait(ANSWER_S)
    except subprocess.TimeoutExpired:
        engine.spawned.process.terminate()
        engine.spawned.process.wait()
    from kvscope.session.recordings_folder import remove_recording

    remove_recording(engine.recording)
    engine.spawned.log_path.unlink(missing_ok=True)
