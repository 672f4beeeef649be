"""A recording in memory: sink and timeline in one, for tests, what-if runs and simulations that need no file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from kvscope.events import Event
from kvscope.recording.recorder import create_recording
from kvscope.recording.writer import CheckpointPolicy, Writer
from kvscope.replay.recording_file import RecordingFile
from kvscope.replay.replay import Replay


class MemoryTimeline(Replay):
    """Implements `EventSink` and `Timeline` with the tables of a file, so that nothing differs from one."""

    is_recording = True

    def __init__(self, path: str | Path = "(memory)", *, checkpoints: CheckpointPolicy | None = None) -> None:
        """`path` is only what the recording calls itself."""
        connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=256, check_same_thread=False)
        create_recording(connection)
        self._writer = Writer(connection, checkpoints)
        super().__init__(RecordingFile(Path(path), connection))

    def write_step(self, step: int, events: Sequence[Event]) -> None:
        """Takes over the events; the step can be read at once."""
        self._writer.write([(step, events)])
        self._last_step = step
        self._config = self._config or self._file.config()

    def refresh(self) -> bool:
        """Nothing is ever new: `write_step` has told already."""
        return False

    def finish(self) -> None:
        """Ends the recording, as closing a recorder does; it can still be read."""
        if self._is_growing:
            self._writer.finish()
            self._is_growing = False

    def close(self) -> None:
        self._file.close()
