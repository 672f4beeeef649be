"""The errors that a user can cause: each message has the value, the limit, and what to do. One catch, in the CLI."""

from __future__ import annotations


class KvscopeError(Exception):
    """Root of all errors that are shown as one line. `exit_code` is what the command ends with."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(KvscopeError):
    """An option or argument is wrong."""

    exit_code = 2


class RecordingError(KvscopeError):
    """A file is missing, is no recording, is damaged, or comes from a newer version."""

    exit_code = 3


class ModelError(KvscopeError):
    """A model is missing, damaged, or of an architecture that is not supported."""

    exit_code = 4


class EngineError(KvscopeError):
    """The engine failed or cannot be reached."""

    exit_code = 5
