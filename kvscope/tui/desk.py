"""Questions that take longer than a key may: answered in a thread, over a connection of its own, watched and left.

One question at a time, the newest wins: asking another one, or leaving, ends the one under way at its next look into
the recording.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from textual.worker import Worker

from kvscope.analysis.text import visible
from kvscope.errors import KvscopeError
from kvscope.events import BlockCached, BlockEvicted, EngineConfigured, Event
from kvscope.replay.timeline import Moment, Moments, RequestRow, StepSummary, Timeline

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

T = TypeVar("T")
E = TypeVar("E")
OpenTimeline = Callable[[Path], Timeline]

PATIENCE_SECONDS = 0.05
"""How long a question waits for the next key: a held key asks once, at its end."""

PROGRESS_SECONDS = 0.2


class QuestionLeft(Exception):
    """Nobody waits for the answer any more."""


class WatchedTimeline:
    """A timeline that tells how far its reader is, and stops it when nobody waits any more."""

    def __init__(self, timeline: Timeline, leader: WatchedTimeline | None = None) -> None:
        """`leader`: another one that the same question reads; it tells how far both are, and is left with this one."""
        self._timeline = timeline
        self._leader = leader
        self.path = timeline.path
        self.is_left = False
        self.step = timeline.first_step
        """The step that was read last."""
        self.doing = ""
        """What the question works at, in a word or two: for whoever waits."""
        self.early: object = None
        """What the question can say before it has read everything."""

    def check(self) -> None:
        """Raises `QuestionLeft` where nobody waits any more: for work that does not look into the recording."""
        if self.is_left:
            raise QuestionLeft
        if self._leader is not None:
            self._leader.check()

    def _look(self, step: int) -> None:
        self.step = step
        if self._leader is not None:
            self._leader.step = max(self._leader.step, step)
        self.check()

    @property
    def config(self) -> EngineConfigured | None:
        return self._timeline.config

    @property
    def first_step(self) -> int:
        return self._timeline.first_step

    @property
    def last_step(self) -> int:
        return self._timeline.last_step

    @property
    def is_growing(self) -> bool:
        return self._timeline.is_growing

    def refresh(self) -> bool:
        return self._timeline.refresh()

    def at(self, step: int) -> Moment:
        self._look(step)
        return self._timeline.at(step)

    def prepare(self, step: int) -> None:
        self._timeline.prepare(step)

    def events(self, first_step: int, last_step: int) -> Iterator[tuple[int, Sequence[Event]]]:
        for step, events in self._timeline.events(first_step, last_step):
            self._look(step)
            yield step, events

    def select_events(
        self, kinds: Collection[type[Event]], first_step: int, last_step: int
    ) -> Iterator[tuple[int, Sequence[Event]]]:
        for step, events in self._timeline.select_events(kinds, first_step, last_step):
            self._look(step)
            yield step, events

    def request_events(self, request_id: str, first_step: int, last_step: int) -> Iterator[tuple[int, Event]]:
        self.check()
        yield from self._timeline.request_events(request_id, first_step, last_step)

    def block_events(self, block_id: int, first_step: int, last_step: int) -> Iterator[tuple[int, Event]]:
        self.check()
        yield from self._timeline.block_events(block_id, first_step, last_step)

    def hash_events(
        self, digits: str, first_step: int, last_step: int
    ) -> Iterator[tuple[int, BlockCached | BlockEvicted]]:
        self.check()
        yield from self._timeline.hash_events(digits, first_step, last_step)

    def kind_events(
        self, kinds: Collection[type[Event]], first_step: int, last_step: int
    ) -> Iterator[tuple[int, Event]]:
        self.check()
        yield from self._timeline.kind_events(kinds, first_step, last_step)

    def steps_sampling(self, token_id: int, first_step: int, last_step: int) -> list[tuple[int, list[int]]]:
        self.check()
        return self._timeline.steps_sampling(token_id, first_step, last_step)

    def damaged_checkpoints(self) -> Iterator[tuple[int, str]]:
        self.check()
        yield from self._timeline.damaged_checkpoints()

    def moments(self) -> Moments:
        self.check()
        return self._timeline.moments()

    def summaries(self, first_step: int, num_columns: int, steps_per_column: int) -> list[StepSummary]:
        self.check()
        return self._timeline.summaries(first_step, num_columns, steps_per_column)

    def request(self, request_id: str) -> RequestRow | None:
        return self._timeline.request(request_id)

    def request_ids(self) -> list[str]:
        return self._timeline.request_ids()

    def token_ids(self, request_id: str, step: int) -> list[int]:
        self.check()
        return self._timeline.token_ids(request_id, step)

    def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        return self._timeline.token_bytes(token_ids)

    def close(self) -> None:
        self._timeline.close()


Question = Callable[[WatchedTimeline], T]


class Desk:
    """Takes questions, one at a time. Reads a file in a thread; a timeline in memory in place."""

    def __init__(
        self,
        app: KvscopeApp,
        open_timeline: OpenTimeline | None,
        watched: Callable[[Timeline], WatchedTimeline] = WatchedTimeline,
    ) -> None:
        """`watched`: how the timeline that is read is watched, such as one whose reader rests while keys come."""
        self._app = app
        self._watched = watched
        self._open_timeline = open_timeline
        self._thread: ThreadPoolExecutor | None = None
        self._opened: Timeline | None = None
        self._watch: WatchedTimeline | None = None
        """The question under way."""

    async def answer(self, question: Question[T], started: Callable[[WatchedTimeline], None]) -> T:
        """Returns the answer; `started` is told the timeline that can be watched. Raises what the question raises."""
        timeline = self._app.model.timeline
        assert timeline is not None
        self.leave()
        if self._open_timeline is None:
            watch = self._watch = WatchedTimeline(timeline)
            started(watch)
            try:
                return question(watch)
            finally:
                self._app.model.renew()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="answers")
        if self._opened is not None and self._opened.path != timeline.path:
            self._thread.submit(self._opened.close)
            self._opened = None
        if self._opened is None:
            self._opened = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._open_timeline, timeline.path
            )
        watch = self._watch = self._watched(self._opened)
        started(watch)
        return await asyncio.get_running_loop().run_in_executor(self._thread, _answered, question, watch)

    def leave(self) -> None:
        """Ends the question under way at its next look into the recording."""
        if self._watch is not None:
            self._watch.is_left = True
            self._watch = None

    def close(self) -> None:
        """Ends everything; called when the screen is left."""
        self.leave()
        if self._thread is not None:
            opened = self._opened
            if opened is not None:
                self._thread.submit(opened.close)
            self._thread.shutdown(wait=False)


def _answered(question: Question[T], watch: WatchedTimeline) -> T:
    watch.check()
    watch.refresh()
    return question(watch)


class Asker(Generic[T]):
    """One kind of question of a place: its newest answer, and whether a newer one is on its way."""

    def __init__(self, app: KvscopeApp, changed: Callable[[], None], desk: Desk | None = None) -> None:
        """`changed` is called when there is something else to show: an answer, or how far it is. `desk`: another one
        than that of the places, whose questions these do not end."""
        self._app = app
        self._desk = app.desk if desk is None else desk
        self._changed = changed
        self._worker: Worker[None] | None = None
        self.key: Hashable = None
        """What was asked last."""
        self.value: T | None = None
        """The newest answer, possibly to an earlier question."""
        self.value_key: Hashable = None
        self.error = ""
        self.watch: WatchedTimeline | None = None
        """Of the question under way."""

    def early(self, kind: type[E]) -> E | None:
        """Returns what the question under way can say already, None where that is nothing of this kind."""
        told = None if self.watch is None else self.watch.early
        return told if isinstance(told, kind) else None

    @property
    def is_waiting(self) -> bool:
        return self._worker is not None and not self._worker.is_finished

    def ask(self, key: Hashable, question: Question[T]) -> None:
        """Asks, unless that is what was asked last."""
        if key == self.key:
            return
        self.key = key
        self.error = ""
        group = f"answers of {id(self._desk)}"
        self._worker = self._app.run_worker(self._ask(key, question), group=group, exclusive=True)

    async def _ask(self, key: Hashable, question: Question[T]) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)
        progress = self._app.set_interval(PROGRESS_SECONDS, self._changed, name="progress")
        try:
            self.value = await self._desk.answer(question, self._started)
            self.value_key = key
        except (QuestionLeft, asyncio.CancelledError) as left:
            if self.key == key:  # else something newer was asked here
                self.key = None
            if isinstance(left, asyncio.CancelledError):
                raise
        except KvscopeError as error:
            self.error, self.value, self.value_key = visible(error.message), None, key
        finally:
            progress.stop()
            self.watch = None
        self._app.call_later(self._changed)

    def _started(self, watch: WatchedTimeline) -> None:
        self.watch = watch
        self._changed()

    def leave(self) -> None:
        """Leaves the question under way; asking it again starts anew."""
        if self.is_waiting:
            self.key = None
            self._desk.leave()
            assert self._worker is not None
            self._worker.cancel()
