"""The panels of the place "recordings". Both are read to their ends in a thread; that can be watched and left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from kvscope.analysis.divergence import Matching, diverge
from kvscope.analysis.sentences import sentences
from kvscope.analysis.spans import Sentence
from kvscope.replay.timeline import Timeline
from kvscope.tui.desk import Asker, OpenTimeline, WatchedTimeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.divergence import (
    Side,
    TwoRuns,
    count_entries,
    request_entries,
    request_title,
    runs_lines,
    side_entries,
)
from kvscope.tui.view.entries import Entry
from kvscope.tui.view.lines import Line, Span
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class DivergenceReading:
    """Two of the open recordings, to where they part; read once, up to the steps that were their last then."""

    def __init__(
        self, app: KvscopeApp, open_timeline: OpenTimeline | None, indexes: tuple[int, int], matching: Matching
    ) -> None:
        self.indexes = indexes
        self.matching: Matching = matching
        self.timelines = tuple(app.recordings.all[index] for index in indexes)
        self.last_steps = tuple(timeline.last_step for timeline in self.timelines)
        self.names = app.recordings.name(indexes[0]), app.recordings.name(indexes[1])
        self.changed: Callable[[], None] = lambda: None
        """Called when there is more to show; whoever shows it sets it."""
        self._open_timeline = open_timeline
        self._asker: Asker[TwoRuns] = Asker(app, lambda: self.changed())

    @property
    def is_current(self) -> bool:
        """Nothing was added to the recordings since."""
        return self.last_steps == tuple(timeline.last_step for timeline in self.timelines)

    def ask(self) -> None:
        """Asks, unless it is answered or was in vain."""
        if self._asker.value is None and not self._asker.error:
            a, b = self.timelines
            question = partial(_parted, a=a, b=b, matching=self.matching, open_timeline=self._open_timeline)
            self._asker.ask("divergence", question)

    @property
    def runs(self) -> TwoRuns | None:
        return self._asker.value

    @property
    def is_in_vain(self) -> bool:
        """They cannot be compared: `waiting_words` says why."""
        return bool(self._asker.error)

    @property
    def waiting_words(self) -> str:
        """How far it has read; or what is wrong."""
        if self._asker.error:
            return self._asker.error
        watch = self._asker.watch
        return "…" if watch is None else f"reading both: step {watch.step:,} of {max(self.last_steps):,} … (esc leaves)"

    def leave(self) -> None:
        """Leaves what is being read; asking again starts anew."""
        self._asker.leave()


def _parted(
    watch: WatchedTimeline, a: Timeline, b: Timeline, matching: Matching, open_timeline: OpenTimeline | None
) -> TwoRuns:
    """Compares two recordings over connections of their own: `watch` is one of them, or another that is shown."""
    with ExitStack() as opened:

        def own(timeline: Timeline) -> WatchedTimeline:
            if open_timeline is None:
                return WatchedTimeline(timeline, watch)
            if timeline.path == watch.path:
                return watch
            found = open_timeline(timeline.path)
            opened.callback(found.close)
            return WatchedTimeline(found, watch)

        ours, theirs = own(a), own(b)
        found = diverge(ours, theirs, matching)
        difference = found.comparison.first_difference
        said: list[Sequence[Sentence]] = [(), ()]
        if difference is not None:
            for index, timeline in enumerate((ours, theirs)):
                if difference.step <= timeline.last_step:
                    said[index] = sentences(timeline, timeline.at(difference.step))
        return TwoRuns(found, (said[0], said[1]), (found.comparison.base.num_steps, found.comparison.changed.num_steps))


class RunsPanel(Panel):
    """Which recordings, which settings, and the step in which they part."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="runs", is_ascii=is_ascii)
        self.reading: DivergenceReading | None = None

    def build(self, width: int, height: int) -> Sequence[Line]:
        reading = self.reading
        if reading is None:
            return []
        if reading.runs is None:
            a, b = reading.names
            names: Line = (
                Span(" A ", "bold", "chip-held"),
                Span(f" {a}  ", "bold"),
                Span(" B ", "bold", "chip-loading"),
                Span(f" {b}", "bold"),
            )
            return [names, (Span(f" {reading.waiting_words}", "bad" if reading.is_in_vain else "dim"),)]
        return runs_lines(reading.runs, reading.names, width, height)


class PartPanel(JumpPanel):
    """What one of the two decided where they part."""

    def __init__(self, model: ScreenModel, side: Side, *, is_ascii: bool) -> None:
        super().__init__(model, id=f"side-{side}", is_ascii=is_ascii)
        self.side: Side = side
        self.reading: DivergenceReading | None = None

    def head(self, width: int, height: int) -> Sequence[Line]:
        runs = None if self.reading is None else self.reading.runs
        difference = None if runs is None else runs.difference
        words = () if difference is None else (Span(f"step {difference.step}", "bold"),)
        return [self.title(self.side.upper(), words, width)]

    def entries(self, width: int) -> Sequence[Entry]:
        runs = None if self.reading is None else self.reading.runs
        return () if runs is None else side_entries(runs, self.side, width)


class CountsPanel(JumpPanel):
    """The counts of both."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="counts", is_ascii=is_ascii)
        self.reading: DivergenceReading | None = None

    def head(self, width: int, height: int) -> Sequence[Line]:
        return [self.title("WHAT IT LED TO", (), width)]

    def entries(self, width: int) -> Sequence[Entry]:
        runs = None if self.reading is None else self.reading.runs
        return () if runs is None else count_entries(runs, width)


class PairsPanel(JumpPanel):
    """The requests that fared otherwise."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="pairs", is_ascii=is_ascii)
        self.reading: DivergenceReading | None = None

    def head(self, width: int, height: int) -> Sequence[Line]:
        runs = None if self.reading is None else self.reading.runs
        return [self.title("REQUESTS", (), width, () if runs is None else request_title(runs))]

    def entries(self, width: int) -> Sequence[Entry]:
        runs = None if self.reading is None else self.reading.runs
        return () if runs is None else request_entries(runs, width)
