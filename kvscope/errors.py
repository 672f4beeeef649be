"""The errors that a user can cause: each message has the value, the limit, and what to do. One catch, in the CLI.

A value may be of any length (a file given for a name, a pasted prompt): what is quoted of it is bounded here, for all.
"""

from __future__ import annotations

import re

MAX_QUOTED = 60
"""Characters of a value that an error quotes."""

MAX_WORD = 240
"""Of a word that stands in it without quotes: longer than most paths."""

MAX_MESSAGE = 1_000

_QUOTED = re.compile(r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|“[^”]*”)(?!\w)""", re.DOTALL)
_WORD = re.compile(rf"\S{{{MAX_WORD + 1},}}")


def bounded(message: str) -> str:
    """Returns an error's message with long values cut: quoted ones, words, and the middle of what is still too long."""

    def quoted(found: re.Match[str]) -> str:
        text = found[0]
        return text if len(text) <= MAX_QUOTED + 2 else f"{text[:MAX_QUOTED]}…{text[-1]}"

    def word(found: re.Match[str]) -> str:
        text = found[0]
        return f"{text[: MAX_WORD - 1]}…{text[-1] if text[-1] in ':;,' else ''}"

    message = _WORD.sub(word, _QUOTED.sub(quoted, message))
    half = MAX_MESSAGE // 2
    return message if len(message) <= MAX_MESSAGE else f"{message[:half]} … {message[3 - half :]}"


class KvscopeError(Exception):
    """Root of all errors that are shown as one line. `exit_code` is what the command ends with."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        self.message = bounded(message)
        super().__init__(self.message)


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
