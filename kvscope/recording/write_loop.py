"""Takes finished steps as they come and commits them, few at a time, until there are no more.

Knows where steps come from only as a `StepSource`: a queue of this process, or the pipe of another.
"""

from __future__ import annotations

import queue
import sqlite3
import time
from pathlib import Path
from typing import Protocol

from kvscope.errors import RecordingError
from kvscope.recording.writer import CheckpointPolicy, Step, Writer

_COMMIT_INTERVAL_S = 0.02
"""A step is on disk at the latest so long after it was handed over; after a pause, at once."""

_MAX_STEPS_A_BATCH = 256

_SWITCH_TIMEOUT_S = 0.3
"""How long closing waits for readers to let go, to leave one file; otherwise the last reader does it."""


class SourceLost(Exception):
    """There will be no more steps, though nobody said that the last one was the last."""


class StepSource(Protocol):
    """Where steps come from; a `queue.SimpleQueue` is one."""

    def get(self, *, timeout: float | None = None) -> Step | None:
        """Waits for the next step, at most so many seconds; None is the end.

        Raises `queue.Empty` where none came in time, and `SourceLost`, each time again, where none can come.
        """
        ...


def write_steps(source: StepSource, path: Path, checkpoints: CheckpointPolicy | None) -> None:
    """Writes all steps of the source into a new recording and closes it.

    Raises what a write raises, and `SourceLost` after all that came before it is written; it is then not closed.
    """
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256, timeout=30)
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        writer = Writer(connection, checkpoints)
        last_commit, is_ended = 0.0, False
        while not is_ended:
            steps, is_ended = _take_batch(source, last_commit + _COMMIT_INTERVAL_S)
            if steps:
                writer.write(steps)
                last_commit = time.monotonic()
        writer.finish()
        leave_one_file(connection)
    finally:
        connection.close()


def _take_batch(source: StepSource, deadline: float) -> tuple[list[Step], bool]:
    """Waits for a step, and for more of them until the deadline; returns them, and whether they are the last."""
    steps: list[Step] = []
    item = source.get()
    while item is not None:
        steps.append(item)
        if len(steps) == _MAX_STEPS_A_BATCH:
            return steps, False
        try:
            item = source.get(timeout=max(deadline - time.monotonic(), 0.0))
        except (queue.Empty, SourceLost):
            return steps, False
    return steps, True


def write_failure(path: Path, error: BaseException) -> RecordingError:
    """Returns what an engine is told whose steps could not be written."""
    if isinstance(error, RecordingError):
        return error
    return RecordingError(f"cannot write the recording {path}: {error}; what was written before can be read")


def leave_one_file(connection: sqlite3.Connection) -> None:
    """Takes the file out of WAL mode. Other readers that hold it open prevent that: the last of them will do it."""
    connection.execute(f"PRAGMA busy_timeout = {int(_SWITCH_TIMEOUT_S * 1000)}")
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
