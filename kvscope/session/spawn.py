"""Starts an engine process, and leaves it on its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kvscope.session import runtime_folder
from kvscope.session.build import check_options, require_engine_extra
from kvscope.session.options import EngineOptions


@dataclass(frozen=True, slots=True)
class SpawnedEngine:
    """An engine process that was just started: a client may connect at once, the model loads meanwhile."""

    process: subprocess.Popen[bytes]
    socket_path: Path
    log_path: Path
    """What the process prints; gone after a clean end where it printed nothing."""


def log_path_for(recording: Path) -> Path:
    """Returns where the process that writes a recording logs: beside it."""
    return recording.with_name(recording.name + ".log")


def spawn_engine(options: EngineOptions) -> SpawnedEngine:
    """Starts an engine process in a session of its own. `options.recording` must be an absolute path.

    Raises:
        UsageError: a setting is wrong, as far as can be seen without the model.
        EngineError: the packages that run a model are not installed, or no socket can be made.
    """
    require_engine_extra()
    check_options(options)
    assert options.recording is not None, "what is shown of an engine process comes from its recording"
    log_path = log_path_for(Path(options.recording))
    listener, socket_path = runtime_folder.listen()
    # The child inherits the listening socket, so that a client never has to wait for it to appear.
    with listener, log_path.open("wb") as log:
        # -P: nothing is imported from the folder that the user stands in, such as one named kvscope.
        command = [sys.executable, "-P", "-m", "kvscope.session.engine_process", msgspec.json.encode(options).decode()]
        process = subprocess.Popen(
            [*command, str(socket_path), str(log_path), str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    return SpawnedEngine(process, socket_path, log_path)
