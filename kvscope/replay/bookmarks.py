"""Bookmarks of a recording: steps with notes, kept beside it as `NAME.db.notes.json`. The recording is never written.

Another program may have the file open: it is read before each change, and replaced in one piece.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from kvscope.errors import KvscopeError, RecordingError

FORMAT = 1
MAX_NOTE_CHARACTERS = 2_000


class NotesError(KvscopeError):
    """The notes cannot be read or written."""

    exit_code = RecordingError.exit_code


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """A step to come back to."""

    step: int
    note: str = ""


class _Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    format: int = FORMAT
    bookmarks: tuple[Bookmark, ...] = ()


def sidecar_of(recording: Path) -> Path:
    """Returns the path of a recording's notes."""
    return recording.with_name(recording.name + ".notes.json")


class Bookmarks:
    """The bookmarks of one recording, by step; at most one a step."""

    def __init__(self, recording: Path) -> None:
        self.path = sidecar_of(recording)
        self._bookmarks: dict[int, Bookmark] = {}
        self._rest: dict[str, Any] = {}

    def read(self) -> list[Bookmark]:
        """Returns the bookmarks by step, none where there is no file. Raises `NotesError`."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            self._bookmarks, self._rest = {}, {}
            return []
        except OSError as error:
            raise NotesError(f"{self.path} cannot be read: {error.strerror or error}") from error
        try:
            found = msgspec.json.decode(raw, type=_Sidecar)
            everything = msgspec.json.decode(raw, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise NotesError(f"{self.path} holds no notes of kvscope ({error}); move it away to begin anew") from error
        if found.format > FORMAT:
            raise NotesError(f"{self.path} has format {found.format}, this kvscope reads up to {FORMAT}")
        self._bookmarks = {bookmark.step: bookmark for bookmark in found.bookmarks}
        self._rest = {key: value for key, value in everything.items() if key not in ("format", "bookmarks")}
        return self.all

    @property
    def all(self) -> list[Bookmark]:
        """The bookmarks as they were read or changed last, by step."""
        return [bookmark for _, bookmark in sorted(self._bookmarks.items())]

    def at(self, step: int) -> Bookmark | None:
        """Returns the bookmark of a step."""
        return self._bookmarks.get(step)

    def put(self, step: int, note: str) -> None:
        """Sets the bookmark of a step, in place of an earlier one. Raises `NotesError`."""
        if len(note) > MAX_NOTE_CHARACTERS:
            raise NotesError(f"a note has at most {MAX_NOTE_CHARACTERS:,} characters, this one {len(note):,}")
        self.read()
        self._write({**self._bookmarks, step: Bookmark(step=step, note=note.strip())})

    def remove(self, step: int) -> None:
        """Removes the bookmark of a step, if there is one. Raises `NotesError`."""
        self.read()
        if step in self._bookmarks:
            self._write({other: bookmark for other, bookmark in self._bookmarks.items() if other != step})

    def _write(self, bookmarks: dict[int, Bookmark]) -> None:
        """Replaces the file in one piece: half a file is never seen, nor left where the disk is full."""
        in_order = tuple(bookmark for _, bookmark in sorted(bookmarks.items()))
        content = {**self._rest, **msgspec.to_builtins(_Sidecar(bookmarks=in_order))}
        data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
        temporary = ""
        try:
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o600)
            Path(temporary).replace(self.path)
        except OSError as error:
            if temporary:
                with suppress(OSError):
                    Path(temporary).unlink()
            why = error.strerror or str(error)
            raise NotesError(f"the bookmark was not kept: {self.path} cannot be written ({why})") from error
        self._bookmarks = bookmarks
