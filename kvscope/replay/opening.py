"""Opens the file of a recording read-only, leaves it as one file, and says whether its writer lives."""

from __future__ import annotations

import os
import platform
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from kvscope.errors import RecordingError
from kvscope.recording.write_loop import leave_one_file

MAKE_ONE = "kvscope run --record FILE"
"""Where recordings come from, for messages."""


def no_recording(path: Path, error: Exception | None) -> str:
    """Returns the message for a file that cannot be read as a recording."""
    return (
        f"{path} is no recording of kvscope, or is damaged: {_one_line(error)}; "
        f"give a file made with {MAKE_ONE}, or a copy that is whole"
    )


def _one_line(error: Exception | None) -> str:
    """Returns what SQLite says without what it quotes of the file beyond the first line."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def connect(path: Path) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    last_error: Exception | None = None
    # A folder that cannot be written to hides what a dead writer left beside the file: then only the file is read.
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        try:
            connection = sqlite3.connect(f"{uri}?{mode}", uri=True, isolation_level=None, check_same_thread=False)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
        except (sqlite3.Error, UnicodeError) as error:  # SQLite quotes a damaged schema, which need not be UTF-8
            last_error = error
    raise RecordingError(no_recording(path, last_error))


def tidy(path: Path) -> None:
    """Makes a recording whose writer has left it in WAL mode one file again, where nobody else has it open."""
    if not path.with_name(path.name + "-wal").exists():
        return
    with suppress(sqlite3.Error, OSError):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
        try:
            leave_one_file(connection)
        finally:
            connection.close()


def is_alive(writer: str | None) -> bool:
    """Returns False only where the writer is known to be gone."""
    try:
        known = msgspec.json.decode(writer or "", type=dict[str, Any])
        if known.get("host") != platform.node():
            return True
        os.kill(int(known["pid"]), 0)
    except ProcessLookupError:
        return False
    except (msgspec.MsgspecError, LookupError, ValueError, TypeError, OSError):
        return True
    return True
