"""The SQLite file of a recording: opened read-only, checked, asked. The only place where a reader meets SQLite.

Every kind of damage becomes a `RecordingError` of one line.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from kvscope import events as ev
from kvscope.errors import RecordingError, UsageError
from kvscope.recording.schema import APPLICATION_ID, FORMAT_VERSION
from kvscope.replay.opening import MAKE_ONE, connect, is_alive, no_recording
from kvscope.replay.upgrades import upgraded_copy

_MAX_VALUE_BYTES = 1 << 28
"""No single value of a recording is as long as 256 MiB."""


class RecordingDatabase:
    """One recording's tables, and what it says of itself as a whole."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Takes over the connection. Raises `RecordingError` where it leads to no recording."""
        self.path = path
        self._connection = connection
        self._protect()
        self._check()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens the file read-only. Raises `RecordingError`."""
        if not path.exists():
            raise RecordingError(f"there is no file {path}: check the path, or make a recording with {MAKE_ONE}")
        if path.is_dir():
            raise RecordingError(f"{path} is a folder; name a recording in it")
        file = cls(path, connect(path))
        if file.format_version < FORMAT_VERSION:
            copy = upgraded_copy(file._connection, file.format_version)
            file.close()
            return cls(path, copy)
        return file

    def _protect(self) -> None:
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        self._run("PRAGMA trusted_schema = OFF")

    def _check(self) -> None:
        if self.one("PRAGMA application_id") != (APPLICATION_ID,):
            raise RecordingError(f"{self.path} is a SQLite database, but no recording of kvscope")
        version = self.meta("format_version") or ""
        if not version.isdecimal():
            raise RecordingError(f"{self.path} is no complete recording: its table `meta` names no format version")
        self.format_version = int(version)
        if self.format_version > FORMAT_VERSION:
            raise RecordingError(
                f"{self.path} has format {version}, this kvscope reads up to {FORMAT_VERSION}: "
                f"it was made by kvscope {self.meta('kvscope_version')}, use that or a newer one"
            )

    # --- SQL ----------------------------------------------------------------------------------------------------------

    def _run(self, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, parameters)
        except UnicodeEncodeError as error:
            raise _no_text(error) from error
        except (sqlite3.Error, UnicodeError) as error:
            raise self._damaged(error) from error

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Returns all rows of a query. Raises `RecordingError` for whatever SQLite says."""
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except UnicodeEncodeError as error:
            raise _no_text(error) from error
        except (sqlite3.Error, UnicodeError) as error:
            raise self._damaged(error) from error

    def one(self, sql: str, parameters: Sequence[object] = ()) -> tuple[Any, ...] | None:
        """Returns the first row, None where there is none."""
        return next(iter(self.rows(sql, parameters)), None)

    def integer(self, value: object) -> int | None:
        """Returns a figure that may be missing. Raises `RecordingError` where it is something else."""
        if value is None or isinstance(value, int):
            return value
        raise self._damaged(TypeError(f"{value!r:.40} stands where a number belongs"))

    def _damaged(self, error: Exception) -> RecordingError:
        return RecordingError(no_recording(self.path, error))

    def close(self) -> None:
        """Closes the file. Where its writer left it in WAL mode and is gone, makes it one file again."""
        self._connection.close()

    # --- the recording as a whole -------------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """Returns an entry of the table `meta`."""
        row = self.one("SELECT value FROM meta WHERE key = ?", (key,))
        return None if row is None or row[0] is None else str(row[0])

    def config(self) -> ev.EngineConfigured | None:
        """Returns the engine's settings, None where it has not configured itself yet."""
        text = self.meta("config")
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=ev.EngineConfigured)
        except msgspec.MsgspecError as error:
            raise self._damaged(error) from error

    def last_step(self) -> int:
        """Returns the last step, -1 where there is none."""
        row = self.one("SELECT max(step) FROM steps")
        return -1 if row is None or row[0] is None else int(row[0])

    def has_writer(self) -> bool:
        """Returns True while somebody may still add steps."""
        return self.meta("closed") != "1" and is_alive(self.meta("writer"))


def _no_text(error: UnicodeEncodeError) -> UsageError:
    """Returns what is wrong with a name that was looked for: the command line is no UTF-8."""
    return UsageError(f"{error.object!r} has bytes that are no UTF-8 text: nothing in a recording is called so")
