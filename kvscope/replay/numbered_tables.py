"""Names, lists and texts that the rows of a recording refer to by number; what was read lately is remembered."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvscope.errors import RecordingError
from kvscope.recording.packing import unpack
from kvscope.replay.recording_database import RecordingDatabase

_MAX_REMEMBERED = 1 << 16
"""Entries of a cache before it starts anew."""

_MAX_LISTS = 1024

_ARRIVAL_COLUMNS = (
    "request_id, max_tokens, arrival_time, priority, cache_salt, lora_name, prompt, sampling, stop_token_ids, "
    "arrival_ns, template_ns, tokenize_ns"
)


class NumberedTables(RecordingDatabase):
    """Requests and tokens by number."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        super().__init__(path, connection)
        self._names: dict[int, str] = {}
        self._lists: dict[int, tuple[int, str]] = {}
        self._requests_of: dict[int, tuple[str, ...]] = {}

    def name_of(self, number: int) -> str:
        """Returns a request's id."""
        name = self._names.get(number)
        return self.names_of((number,))[number] if name is None else name

    def names_of(self, numbers: Collection[int]) -> Mapping[int, str]:
        """Returns the ids of requests, among others."""
        missing = [number for number in numbers if number not in self._names]
        if missing:
            if len(self._names) > _MAX_REMEMBERED:
                self._names = {}
                missing = list(numbers)
            low, high = min(missing), max(missing)
            if high - low > 4 * len(missing) + 1000:  # far apart: one by one
                for number in missing:
                    self._names.update(self.rows("SELECT number, request_id FROM requests WHERE number = ?", (number,)))
            else:
                sql = "SELECT number, request_id FROM requests WHERE number BETWEEN ? AND ?"
                self._names.update(self.rows(sql, (low, high)))
        return self._names

    def read_lists(self, list_ids: Collection[int]) -> None:
        """Reads lists of requests together, as far as they are not known."""
        missing = [list_id for list_id in list_ids if list_id not in self._lists]
        if len(missing) > 1:
            if len(self._lists) > _MAX_LISTS:
                self._lists = {}
            marks = ", ".join("?" * len(missing))
            sql = f"SELECT id, first_request, offsets FROM request_lists WHERE id IN ({marks})"
            self._lists.update((row[0], (row[1], row[2])) for row in self.rows(sql, missing))

    def list_of(self, list_id: int) -> tuple[int, str]:
        """Returns a list of requests as stored: the first number, and packed offsets to it."""
        known = self._lists.get(list_id)
        if known is None:
            row = self.one("SELECT first_request, offsets FROM request_lists WHERE id = ?", (list_id,))
            if row is None:
                raise RecordingError(f"{self.path} lacks the list {list_id} of requests")
            if len(self._lists) > _MAX_LISTS:
                self._lists = {}
            known = self._lists[list_id] = (row[0], row[1])
        return known

    def requests_of(self, list_id: int) -> tuple[str, ...]:
        """Returns a list of requests as ids."""
        known = self._requests_of.get(list_id)
        if known is None:
            first, offsets = self.list_of(list_id)
            numbers = [first + offset for offset in unpack(offsets)]
            names = self.names_of(numbers)
            if len(self._requests_of) > _MAX_LISTS:
                self._requests_of = {}
            known = self._requests_of[list_id] = tuple([names[number] for number in numbers])
        return known

    def arrival_rows(self, numbers: Sequence[int]) -> tuple[dict[int, tuple[Any, ...]], dict[int, bytes]]:
        """Returns the rows of requests and their packed prompts, both by number, as far as they are there."""
        requests: dict[int, tuple[Any, ...]] = {}
        prompts: dict[int, bytes] = {}
        for begin in range(0, len(numbers), 500):
            some = numbers[begin : begin + 500]
            marks = ", ".join("?" * len(some))
            found = self.rows(f"SELECT number, {_ARRIVAL_COLUMNS} FROM requests WHERE number IN ({marks})", some)
            requests.update((row[0], row[1:]) for row in found)
            prompts.update(self.rows(f"SELECT request, token_ids FROM prompt_tokens WHERE request IN ({marks})", some))
        return requests, prompts

    def token_bytes(self, token_ids: Collection[int]) -> dict[int, bytes]:
        """Returns what the tokens stand for, of those that have a text."""
        found: dict[int, bytes] = {}
        distinct = [token_id for token_id in set(token_ids) if abs(token_id) < 1 << 62]
        for begin in range(0, len(distinct), 500):
            some = distinct[begin : begin + 500]
            marks = ", ".join("?" * len(some))
            found.update(self.rows(f"SELECT token_id, bytes FROM tokens WHERE token_id IN ({marks})", some))
        return found
