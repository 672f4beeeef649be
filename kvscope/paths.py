"""Paths as a user writes them, `~` included."""

from __future__ import annotations

from pathlib import Path

from kvscope.errors import UsageError


def expanded(path: str | Path) -> Path:
    """Returns the path with `~` and `~name` replaced by home folders.

    Raises `UsageError` where nobody is called so, or no file can have such a name.
    """
    if "\0" in str(path):
        raise UsageError(f"{path} is no path: no file has a NUL character in its name")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        name = Path(path).parts[0]
        raise UsageError(f"{path}: there is no home folder of {name[1:] or 'yours'}: write the path out") from None
