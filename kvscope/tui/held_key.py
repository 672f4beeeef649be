"""How far a key goes that is held: farther, the longer. Known by when it was heard alone: terminals tell of no release.

A held key comes again and again, quicker or more evenly than a finger can tap. Whatever comes slower, less evenly, or
quicker than any keyboard repeats (a paste, a script) goes one step each. The first pause ends it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

STAGES = ((0.0, 1), (0.8, 2), (1.5, 5), (2.5, 10), (4.0, 20), (6.0, 50), (8.0, 100), (10.0, 200), (12.0, 500))
"""Seconds that a key has been held for, and how many times as far it goes from then on."""

RELEASED_S = 0.16
"""After a pause like this a key was let go: repeats come every 15 to 90 ms, over a slow line some later."""

NUM_GAPS = 8
"""Gaps between presses that tell a held key from taps."""

TAPPED_S = 0.07
"""Gaps longer than this on average may be taps, 14 a second, unless they are of one length."""

SLOW_REPEAT_S, EVEN_S = 0.1, 0.015
"""A slow keyboard repeats at least so often, and as evenly; no finger does."""

TYPED_BY_NOBODY_S = 0.008
"""No keyboard repeats quicker: a program types."""


class HeldKey:
    """Hears every key with its time, and says how many times as far the last one goes."""

    def __init__(self) -> None:
        self._key = ""
        self._last = self._since = float("-inf")
        self._gaps: deque[float] = deque(maxlen=NUM_GAPS)
        self.num_times = 1

    def hear(self, key: str, at: float) -> int:
        """Takes notice of a key at a time in seconds, of any clock that only goes on; returns `num_times`."""
        gap = at - self._last
        if key != self._key or gap > RELEASED_S:
            self._key, self._since = key, at
            self._gaps.clear()
        else:
            self._gaps.append(gap)
        self._last = at
        self.num_times = STAGES[bisect_right(STAGES, (at - self._since, 1 << 30)) - 1][1] if self._is_held else 1
        return self.num_times

    @property
    def _is_held(self) -> bool:
        if len(self._gaps) < NUM_GAPS:
            return False
        mean = sum(self._gaps) / NUM_GAPS
        if mean < TYPED_BY_NOBODY_S:
            return False
        return mean <= TAPPED_S or (mean <= SLOW_REPEAT_S and max(self._gaps) - min(self._gaps) <= EVEN_S)
