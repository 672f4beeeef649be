"""The search after `/`: what is looked for, what was found so far, and the way from hit to hit."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from textual.worker import Worker

from kvscope.analysis.search import Hit, Query, Reached, parse_query, search_around
from kvscope.analysis.text import visible
from kvscope.errors import KvscopeError
from kvscope.replay.timeline import Timeline
from kvscope.tui.desk import OpenTimeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.search import SearchModal, SearchScreen
from kvscope.tui.slices import in_slices
from kvscope.tui.view.search import hit_words

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

MAX_HITS = 2_000
"""More than anybody walks through; a search that finds more ends there and says so."""

SHOW_SECONDS = 0.2


class Finding:
    """One search at a time, from the step that is shown in both directions. One that was left can be taken up again."""

    def __init__(self, app: KvscopeApp, open_timeline: OpenTimeline | None) -> None:
        self._app = app
        self._open_timeline = open_timeline
        self._worker: Worker[None] | None = None
        self._known: set[tuple[object, ...]] = set()
        self.query: Query | None = None
        self.hits: list[Hit] = []
        """By step."""
        self.current = -1
        """The hit that was gone to last."""
        self.reached = Reached(0, -1)
        """What was looked through."""
        self.num_steps = 0
        """Of the recording, when it was last looked into."""
        self.error = ""
        self.version = 0

    @property
    def _model(self) -> ScreenModel:
        return self._app.model

    @property
    def is_searching(self) -> bool:
        return self._worker is not None and not self._worker.is_finished

    @property
    def is_full(self) -> bool:
        """There may be more hits than these."""
        return len(self.hits) >= MAX_HITS

    def ask(self) -> None:
        """Opens the line to type, with what was looked for last."""
        text = "" if self.query is None else self.query.text
        self._app.push_screen(SearchModal(text, self.submit, is_ascii=self._app.is_ascii))

    def submit(self, text: str) -> str | None:
        """Looks for the text and opens the place of its hits; returns what is wrong with it."""
        if self._model.timeline is None or self._model.step < 0:
            return "there is no step yet to look in"
        try:
            query = parse_query(text)
        except KvscopeError as error:
            return visible(error.message)
        if self.query is None or query.text != self.query.text:
            self._start(query, self._model.timeline)
        elif not self.is_searching:
            self._search_on(self.query, self._model.timeline)
        self._app.call_later(self._open)
        return None

    def _open(self) -> None:
        if not isinstance(self._app.screen, SearchScreen):
            self._app.push_screen(SearchScreen(self._model, self, is_ascii=self._app.is_ascii))

    def _start(self, query: Query, timeline: Timeline) -> None:
        self.leave()
        self.query, self.hits, self.current = query, [], -1
        self._known = set()
        self.reached = Reached(self._model.step, self._model.step - 1)
        self._search_on(query, timeline)

    def _search_on(self, query: Query, timeline: Timeline) -> None:
        """Begins, or takes up what was left; there is nothing to do where all is searched, or too much was found."""
        self.error = ""
        self.num_steps = timeline.last_step - timeline.first_step + 1
        if not self.is_full and not self.is_complete:
            self._worker = self._app.run_worker(self._search(query, timeline), group="find")

    @property
    def is_complete(self) -> bool:
        """Every step is searched."""
        return self.reached.num_steps >= self.num_steps

    async def _search(self, query: Query, timeline: Timeline) -> None:
        first, last, reached = timeline.first_step, timeline.last_step, self.reached

        def pieces(own: Timeline) -> Iterator[Hit | Reached]:
            return search_around(own, query, first, last, reached)

        shown_at = 0.0
        try:
            async with aclosing(in_slices(timeline, self._open_timeline, pieces)) as slices:
                async for some in slices:
                    for piece in some:
                        self._hear(piece)
                    if self.is_full:
                        break
                    if time.monotonic() - shown_at > SHOW_SECONDS:
                        shown_at = time.monotonic()
                        self._show()
        except KvscopeError as error:
            self.error = visible(error.message)
        except asyncio.CancelledError:
            self._show()
            raise
        self._worker = None
        self._show()

    def _hear(self, piece: Hit | Reached) -> None:
        if isinstance(piece, Reached):
            self.reached = piece
            return
        key = (piece.step, piece.kind, piece.request_id, piece.block_id, piece.match, piece.after[:8])
        if key not in self._known and not self.is_full:
            self._known.add(key)
            if self.current >= 0 and piece.step < self.hits[self.current].step:
                self.current += 1
            insort(self.hits, piece, key=lambda hit: hit.step)

    def _show(self) -> None:
        if self.current >= 0:
            self._model.note = self.hits[self.current].step, hit_words(self.current, self.hits)
        self.version += 1
        self._model.version += 1
        self._app.show_soon()

    def leave(self) -> bool:
        """Ends a search that is under way; what it has found stays. False where none was."""
        if not self.is_searching:
            return False
        assert self._worker is not None
        self._worker.cancel()
        self._worker = None
        return True

    def search_again(self) -> None:
        """Looks for the same in the recording that is shown now; nothing where nothing was looked for."""
        timeline = self._model.timeline
        if self.query is not None and timeline is not None and self._model.step >= 0:
            self._start(self.query, timeline)

    def clear(self) -> None:
        """Forgets the search: `n` and `N` go to events again."""
        self.leave()
        self.query, self.hits, self.current = None, [], -1
        self._model.note = None
        self._show()

    def end(self) -> bool:
        """Forgets the search, and says so; False where there is none."""
        if self.query is None:
            return False
        words, keys = visible(self.query.text), self._app.keys.shown("n N")
        self.clear()
        self._app.say(f"the search for “{words}” is over: {keys} go to events again")
        return True

    # From hit to hit

    @property
    def is_target(self) -> bool:
        """`n` and `N` go to hits; to events, as before, where a search has ended in vain."""
        return self.query is not None and (bool(self.hits) or self.is_searching)

    def go_on(self, direction: int) -> None:
        """Goes to the next hit, or the one before; several in one step are gone to one after another."""
        index = self._next(direction)
        if index is not None:
            self.go_to(index)
            return
        where, others, key = ("after", "before it", "N") if direction > 0 else ("before", "after it", "n")
        more = f": {self._app.keys.shown(key)} goes to {len(self.hits):,} {others}" if self.hits else ""
        so_far = ", the search goes on" if self.is_searching else ""
        if not self.is_searching and not self.is_complete and not self.is_full:
            first, last = self.reached.first_step, self.reached.last_step
            keys = self._app.keys.shown("/ ⏎")
            so_far = f", in steps {first:,} to {last:,}: {keys} searches on"
        self._app.say(f"no hit {where} step {self._model.wanted_step}{more}{so_far}")

    def _next(self, direction: int) -> int | None:
        step = self._model.wanted_step
        if self.current < 0 and direction > 0:  # the first time, one in the step itself counts
            step -= 1
        if 0 <= self.current < len(self.hits) and self.hits[self.current].step == step:
            index = self.current + direction
        else:
            index = bisect_left(self.hits, step + (direction > 0), key=lambda hit: hit.step) - (direction < 0)
        return index if 0 <= index < len(self.hits) else None

    def go_to(self, index: int) -> None:
        """Goes to a hit: its step, its request, its block."""
        self.current = index
        hit = self.hits[index]
        self._app.navigation.arrive(hit.step, hit.request_id, hit.block_id)
        self._show()
