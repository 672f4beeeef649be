"""Which tokens a text must have in order to hold some words: what has none of them need not be decoded.

The words' middle character must come from some token. Only few tokens of a vocabulary can bring it: those that hold the
words, or a part of them around that character, at a place where the rest would still fit. For plain words in ASCII; a
token with other bytes, or without any, counts as one that may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvscope.analysis.search.query import Query

_MIN_CHARACTERS = 3
"""Of shorter words most tokens may bring the middle."""


class Anchors:
    """The tokens that may bring the middle character of some words, of those that were looked at."""

    def __init__(self, words: str, *, ignores_case: bool) -> None:
        self._words = (words.lower() if ignores_case else words).encode()
        self._ignores_case = ignores_case
        self._tokens: set[int] = set()
        self._looked_at: set[int] = set()

    @property
    def num_bytes(self) -> int:
        """Of the words: as many tokens may hold them, and no more."""
        return len(self._words)

    def unknown(self, token_ids: Iterable[int]) -> set[int]:
        """Returns the tokens that were not looked at yet."""
        return set(token_ids) - self._looked_at

    def look_at(self, pieces: Mapping[int, bytes]) -> None:
        """Looks at tokens, once each."""
        self._looked_at.update(pieces)
        self._tokens.update(token_id for token_id, piece in pieces.items() if self._may_bring_middle(piece))

    def are_in(self, token_ids: Iterable[int]) -> bool:
        """True where the words may be there. All tokens must have been looked at."""
        return not self._tokens.isdisjoint(token_ids)

    def _may_bring_middle(self, piece: bytes) -> bool:
        if not piece or not piece.isascii():
            return True
        words = self._words
        piece = piece.lower() if self._ignores_case else piece
        middle = len(words) // 2
        for begin in range(middle - len(piece) + 1, middle + 1):  # where in the words the token would begin
            low, high = max(begin, 0), min(begin + len(piece), len(words))
            if words[low:high] == piece[low - begin : high - begin]:
                return True
        return False


def anchors_of(query: Query) -> Anchors | None:
    """Returns the anchors of a query's words, None where every text must be decoded."""
    pattern = query.pattern
    if pattern is None or not query.is_literal or not query.words.isascii() or len(query.words) < _MIN_CHARACTERS:
        return None
    return Anchors(query.words, ignores_case=query.words == query.words.lower())
