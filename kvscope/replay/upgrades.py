"""Brings recordings of older formats to the present one: one function for each change of the format.

A recording is never written again, so it is a copy that is upgraded: in a temporary database that SQLite keeps in
memory while it is small and on disk beyond.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from kvscope.errors import RecordingError
from kvscope.recording.schema import FORMAT_VERSION

Upgrade = Callable[[sqlite3.Connection], None]


def _add_adapters(connection: sqlite3.Connection) -> None:
    """Format 2 knows the adapter of a request; before, no request had one."""
    connection.execute("ALTER TABLE requests ADD COLUMN lora_name TEXT")


UPGRADES: Mapping[int, Upgrade] = {1: _add_adapters}
"""By the version that it starts from; the function makes the next one of it. Version 1 is the first."""


def upgraded_copy(connection: sqlite3.Connection, version: int) -> sqlite3.Connection:
    """Returns a copy of a recording in the present format. Raises `RecordingError` where no way leads to it."""
    copy = sqlite3.connect("", isolation_level=None)
    connection.backup(copy)
    for start in range(version, FORMAT_VERSION):
        upgrade = UPGRADES.get(start)
        if upgrade is None:
            raise RecordingError(
                f"recordings of format {version} are no longer read; this kvscope reads {FORMAT_VERSION}"
            )
        upgrade(copy)
        copy.execute("UPDATE meta SET value = ? WHERE key = 'format_version'", (str(start + 1),))
    return copy
