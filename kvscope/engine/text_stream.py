"""The text of a growing output: ends at a stop string, and gives away only what no later token can take back.

That is: never half a character, and nothing that may yet turn out to be the beginning of a stop string.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from kvscope.engine.text_codec import TextCodec


class TextStream:
    """`text` is everything so far, cut off in front of a stop string; `take` gives it piece by piece."""

    def __init__(self, codec: TextCodec, stop: Sequence[str] = (), min_tokens: int = 0) -> None:
        """A stop string counts if it is complete after more than `min_tokens` tokens, wherever it begins (as vLLM)."""
        self.text = ""
        self.stop: str | None = None
        self._codec = codec
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = tuple(stop)
        self._longest_stop = max(map(len, self._stops), default=0)
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._num_taken = 0
        self._is_finished = False

    def add(self, token_ids: Sequence[int]) -> str | None:
        """Adds tokens one by one, up to a stop string, which is returned."""
        for token_id in token_ids:
            if self.stop is None:
                is_text = token_id not in self._codec.special_token_ids
                self._append(self._decoder.decode(self._codec.token_bytes(token_id)) if is_text else "")
                self._num_tokens += 1
        return self.stop

    def finish(self) -> None:
        """After this `take` gives everything; the bytes of a character that never came to its end are left out."""
        self._is_finished = True

    def take(self) -> str:
        """Returns the text that was not returned before and can no longer become part of a stop string."""
        end = len(self.text)
        if not self._is_finished and self.stop is None:
            end -= self._num_held_back()
        new_text = self.text[self._num_taken : end]
        self._num_taken = max(self._num_taken, end)
        return new_text

    def _append(self, new_text: str) -> None:
        num_before = len(self.text)
        self.text += new_text
        if self._num_tokens >= self._min_tokens and (found := self._find_stop(num_before)) is not None:
            position, self.stop = found
            self.text = self.text[:position]

    def _find_stop(self, num_before: int) -> tuple[int, str] | None:
        """Returns where the stop string begins that is complete first, and which; of equals the one named first.

        `num_before` characters were searched before: only one that ends behind them is found.
        """
        found = [
            (position, stop)
            for stop in self._stops
            if (position := self.text.find(stop, max(num_before - len(stop) + 1, 0))) >= 0
        ]
        return min(found, key=lambda one: one[0] + len(one[1]), default=None)

    def _num_held_back(self) -> int:
        """The longest end of the text that a stop string begins with."""
        for length in range(min(self._longest_stop - 1, len(self.text) - self._num_taken), 0, -1):
            if any(stop.startswith(self.text[-length:]) for stop in self._stops):
                return length
        return 0
