"""Where recordings go when nobody says: the user's data folder, one file a run."""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path

import platformdirs

from kvscope.errors import UsageError
from kvscope.paths import expanded

RECORDINGS_FOLDER_VARIABLE = "KVSCOPE_RECORDINGS"


def recordings_folder() -> Path:
    """Returns the folder, which may not exist yet. `KVSCOPE_RECORDINGS` moves it."""
    if chosen := os.environ.get(RECORDINGS_FOLDER_VARIABLE):
        return Path(chosen)
    return platformdirs.user_data_path("kvscope") / "recordings"


def new_recording_path(model: str, now: datetime.datetime) -> Path:
    """Returns a path that no file has yet, named after the moment and the model.

    An engine that another screen has just started has its log there, before its model is loaded and it records.
    """
    name = re.sub(r"[^a-z0-9.]+", "-", Path(model).name.lower()).strip("-.") or "model"
    stem = f"{now:%Y-%m-%d-%H%M%S}-{name}"
    return unused_path(recordings_folder() / f"{stem}.db")


def unused_path(path: Path) -> Path:
    """Returns the path, with a number behind its name where a file or an engine has it already."""
    found, number = path, 2
    while found.exists() or found.with_name(f"{found.name}.log").exists():
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return found


def claim_recording_path(path: Path, *, may_replace: bool) -> Path:
    """Returns the absolute path of a recording to be written, its folder made. An old file stays until it is replaced.

    Raises `UsageError` where a file is in the way, or the folder cannot be written to.
    """
    path = expanded(path).absolute()
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder: name a file for the recording")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no file, and is left as it is: name a file for the recording")
        if path.exists() and not may_replace:
            raise UsageError(f"{path} exists already: name another file, or replace it with --force")
    except OSError as error:
        raise UsageError(f"cannot write a recording to {path}: {error.strerror}") from error
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {path.parent}: {error.strerror}") from error
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot write a recording to {path}: no permission in {path.parent}")
    return path


def remove_recording(path: Path) -> None:
    """Removes a recording and what SQLite may have left beside it; nothing needs to be there."""
    for old in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
        old.unlink(missing_ok=True)
