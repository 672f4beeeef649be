"""The names of an engine's requests: each is given once."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.engine.settings import is_unicode
from kvscope.errors import UsageError


class RequestIds:
    """A recording never has two requests of one name. Knows no threads: a caller sees to it that nobody else looks."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._num_made_up = 0

    def is_taken(self, request_id: str) -> bool:
        """True where a request has or had this id, also a refused one."""
        return request_id in self._taken

    def take(self, wanted: Sequence[str | None]) -> list[str]:
        """Takes an id for each of these requests for good: the one it wants, else the next `req-N` that is free.

        Raises `UsageError` where one cannot be had; none is taken then.
        """
        given = [request_id for request_id in wanted if request_id is not None]
        for number, request_id in enumerate(given):
            self._check(request_id)
            if request_id in given[:number]:
                raise UsageError(f"two of these requests are called {request_id!r}: choose another id")
        self._taken.update(given)  # first: none of them is made up for another
        return [self._make_up() if request_id is None else request_id for request_id in wanted]

    def take_for_refused(self, wanted: str | None) -> str:
        """Takes an id for a request that is refused, which it wants or not."""
        try:
            return self.take([wanted])[0]
        except UsageError:
            return self._make_up()

    def _check(self, request_id: str) -> None:
        if not request_id or not is_unicode(request_id):
            raise UsageError(f"a request's id must be UTF-8 text of at least one character, not {request_id!r}")
        if self.is_taken(request_id):
            raise UsageError(f"there was a request {request_id!r} already: choose another id")

    def _make_up(self) -> str:
        while True:
            self._num_made_up += 1
            request_id = f"req-{self._num_made_up}"
            if not self.is_taken(request_id):
                self._taken.add(request_id)
                return request_id
