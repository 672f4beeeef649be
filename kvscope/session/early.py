"""Submissions that come while the model still loads: they get their ids at once and wait."""

from __future__ import annotations

import contextlib
import itertools

import msgspec

from kvscope.control import Submit
from kvscope.engine.llm_engine import LLMEngine
from kvscope.errors import KvscopeError, UsageError
from kvscope.session.submission import submit


class EarlySubmissions:
    """In the order in which they came. Knows no threads: the caller sees to it that nobody else looks."""

    def __init__(self) -> None:
        self._all: list[Submit] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, command: Submit) -> str:
        """Returns the request's id. Raises `UsageError` where it is taken."""
        taken = {early.request_id for early in self._all}
        numbers = (f"req-{number}" for number in itertools.count(1))
        request_id = command.request_id or next(number for number in numbers if number not in taken)
        if request_id in taken:
            raise UsageError(f"there is a request {request_id} already: choose another id")
        self._all.append(msgspec.structs.replace(command, request_id=request_id))
        return request_id

    def remove(self, request_id: str) -> bool:
        """Takes one back; False where none has this id."""
        kept = [early for early in self._all if early.request_id != request_id]
        is_found = len(kept) < len(self._all)
        self._all = kept
        return is_found

    def submit_all(self, engine: LLMEngine) -> None:
        """Submits them, all before the first step. A refused one is in the record, where the screen shows it."""
        for early in self._all:
            with contextlib.suppress(KvscopeError):
                submit(engine, early)
