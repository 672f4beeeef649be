"""The sink that writes a recording: the engine's thread hands over finished steps, another thread or process writes.

While it is open the file is in WAL mode, so that others can follow it; closed, it is one file again. A process that
dies leaves what was committed, at most some 20 ms behind.
"""

from __future__ import annotations

import atexit
import os
import platform
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kvscope import __version__
from kvscope import events as ev
from kvscope.errors import RecordingError
from kvscope.recording.schema import FORMAT_VERSION, create_tables
from kvscope.recording.step_pipe import write_steps_elsewhere
from kvscope.recording.write_loop import write_failure, write_steps
from kvscope.recording.writer import CheckpointPolicy, Step

_MAX_QUEUED_STEPS = 2048
"""An engine that is this far ahead of the writer waits: memory stays bounded."""


class Recorder:
    """Implements `EventSink` over a new file. Use as a context manager, or call `close`."""

    is_recording = True

    def __init__(
        self, path: str | Path, *, checkpoints: CheckpointPolicy | None = None, in_own_process: bool = False
    ) -> None:
        """Makes the file. Raises `RecordingError` where one is there already, or none can be made.

        `in_own_process`: for runs whose own work must not wait for the writer; a process takes a tenth of a second to
        start, and the first steps wait for it.
        """
        self.path = Path(path)
        self._checkpoints = checkpoints
        self._write = write_steps_elsewhere if in_own_process else write_steps
        self._queue: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._is_closed = False
        _create_file(self.path)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write_step(self, step: int, events: Sequence[ev.Event]) -> None:
        """Hands over a finished step. Raises `RecordingError` where an earlier one could not be written."""
        if self._error is not None:
            raise write_failure(self.path, self._error)
        self._queue.put((step, events))
        while self._queue.qsize() > _MAX_QUEUED_STEPS and self._error is None:
            time.sleep(0.001)

    def close(self) -> None:
        """Writes what is left and closes the file. Raises `RecordingError` where something could not be written."""
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self.close)
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise write_failure(self.path, self._error)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._write(self._queue, self.path, self._checkpoints)
        except Exception as error:
            self._error = error


def create_recording(connection: sqlite3.Connection) -> None:
    """Makes the tables of a recording in an empty database."""
    from sqlite_utils import Database  # here: it brings numpy along, which readers would wait for too

    connection.execute("BEGIN")
    database = Database(connection)
    create_tables(database)
    writer = {"pid": os.getpid(), "host": platform.node()}
    meta = {
        "format_version": str(FORMAT_VERSION),
        "kvscope_version": __version__,
        "created_at": datetime.now(UTC).astimezone().isoformat(timespec="seconds"),
        "writer": msgspec.json.encode(writer).decode(),
        "closed": "0",
    }
    database.table("meta").insert_all({"key": key, "value": value} for key, value in meta.items())
    connection.execute("COMMIT")


def _create_file(path: Path) -> None:
    try:
        with path.open("xb"):
            pass
    except FileExistsError:
        raise RecordingError(
            f"{path} is there already; a recording is never written over: choose another name"
        ) from None
    except OSError as error:
        raise RecordingError(f"cannot make the recording {path}: {error.strerror}") from error
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        create_recording(connection)
    except sqlite3.Error as error:
        raise RecordingError(f"cannot make the recording {path}: {error}") from error
    finally:
        connection.close()
