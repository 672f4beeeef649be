"""The sink that writes a recording: the engine's thread hands over finished steps, a thread of its own writes them.

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
from importlib.metadata import version
from pathlib import Path

import msgspec

from kvscope import events as ev
from kvscope.errors import RecordingError
from kvscope.recording.schema import FORMAT_VERSION, create_tables
from kvscope.recording.writer import CheckpointPolicy, Step, Writer

_COMMIT_INTERVAL_S = 0.02
"""A step is on disk at the latest so long after it was handed over; after a pause, at once."""

_MAX_STEPS_A_BATCH = 256
_MAX_QUEUED_STEPS = 2048
"""An engine that is this far ahead of the writer waits: memory stays bounded."""

_SWITCH_TIMEOUT_S = 0.3
"""How long closing waits for readers to let go, to leave one file; otherwise the last reader does it."""


class Recorder:
    """Implements `EventSink` over a new file. Use as a context manager, or call `close`."""

    is_recording = True

    def __init__(self, path: str | Path, *, checkpoints: CheckpointPolicy | None = None) -> None:
        """Makes the file. Raises `RecordingError` where one is there already, or none can be made."""
        self.path = Path(path)
        self._checkpoints = checkpoints
        self._queue: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._is_closed = False
        self._last_commit = 0.0
        _create_file(self.path)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write_step(self, step: int, events: Sequence[ev.Event]) -> None:
        """Hands over a finished step. Raises `RecordingError` where an earlier one could not be written."""
        if self._error is not None:
            raise self._failure(self._error)
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
            raise self._failure(self._error)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _failure(self, error: BaseException) -> RecordingError:
        if isinstance(error, RecordingError):
            return error
        return RecordingError(f"cannot write the recording {self.path}: {error}; what was written before can be read")

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(self.path, isolation_level=None, cached_statements=256, timeout=30)
            connection.execute("PRAGMA synchronous = NORMAL")
            writer = Writer(connection, self._checkpoints)
            while self._write_batch(writer):
                pass
            writer.finish()
            leave_one_file(connection)
        except Exception as error:
            self._error = error
        finally:
            if connection is not None:
                connection.close()

    def _write_batch(self, writer: Writer) -> bool:
        """Waits for steps and writes them in one transaction. Returns False once the recorder is closed."""
        steps: list[Step] = []
        item = self._queue.get()
        deadline = self._last_commit + _COMMIT_INTERVAL_S
        while item is not None:
            steps.append(item)
            if len(steps) == _MAX_STEPS_A_BATCH:
                break
            try:
                item = self._queue.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                break
        if steps:
            writer.write(steps)
            self._last_commit = time.monotonic()
        return item is not None


def create_recording(connection: sqlite3.Connection) -> None:
    """Makes the tables of a recording in an empty database."""
    from sqlite_utils import Database  # here: it brings numpy along, which readers would wait for too

    connection.execute("BEGIN")
    database = Database(connection)
    create_tables(database)
    writer = {"pid": os.getpid(), "host": platform.node()}
    meta = {
        "format_version": str(FORMAT_VERSION),
        "kvscope_version": version("kvscope"),
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


def leave_one_file(connection: sqlite3.Connection) -> None:
    """Takes the file out of WAL mode. Other readers that hold it open prevent that: the last of them will do it."""
    connection.execute(f"PRAGMA busy_timeout = {int(_SWITCH_TIMEOUT_S * 1000)}")
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
