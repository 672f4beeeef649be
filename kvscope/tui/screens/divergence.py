"""Recordings: two of those that are open, where they part, and what it led to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from kvscope.analysis.divergence import Matching
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.place import Place
from kvscope.tui.view.divergence import Side, first_sight
from kvscope.tui.view.layout import SHORT_ROWS
from kvscope.tui.view.lines import Target
from kvscope.tui.widgets.divergence_panels import CountsPanel, DivergenceReading, PairsPanel, PartPanel, RunsPanel
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.panel import Panel

ReadingOf = Callable[[tuple[int, int], Matching], DivergenceReading]
"""Returns the reading of two recordings by their numbers, the one that is there already where it is still true."""

MATCHINGS: tuple[Matching, ...] = ("auto", "id", "content")


class DivergenceScreen(Place):
    """A is the first recording; B the one that was looked at, or the next."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "into('a')", "into A, where they part", show=False, id="look.into_a"),
        Binding("2", "into('b')", "into B, where they part", show=False, id="look.into_b"),
        Binding("M", "matching", "match requests: auto, id, content", show=False, id="look.matching"),
        Binding("a,A", "other", "compare A with another recording", show=False, id="look.other"),
        Binding("c", "nothing", "", show=False),
    ]

    IS_OF_STEP = False
    KEYS = (
        ("⏎", "go there"),
        ("esc", "back"),
        ("1 2", "into A, B"),
        ("tab", "panel"),
        ("j k", "move"),
        ("a", "other B"),
        ("M", "match"),
        ("?", "help"),
    )

    def __init__(self, model: ScreenModel, reading_of: ReadingOf, indexes: tuple[int, int], *, is_ascii: bool) -> None:
        super().__init__(model, is_ascii=is_ascii)
        self._reading_of = reading_of
        self._indexes = indexes
        self._matching: Matching = "auto"
        self.runs = RunsPanel(model, is_ascii=is_ascii)
        self.a = PartPanel(model, "a", is_ascii=is_ascii)
        self.b = PartPanel(model, "b", is_ascii=is_ascii)
        self.counts = CountsPanel(model, is_ascii=is_ascii)
        self.pairs = PairsPanel(model, is_ascii=is_ascii)

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.runs
        with Horizontal(id="decided"):
            yield self.a
            yield self.b
        with Horizontal(id="body"):
            yield self.counts
            yield self.pairs
        yield self.footer

    @property
    def lists(self) -> Sequence[JumpPanel]:
        return (self.a, self.b, self.counts, self.pairs)

    @property
    def panels(self) -> Sequence[Panel]:
        return (self.runs, *self.lists)

    def on_mount(self) -> None:
        self._take_up()
        super().on_mount()

    def on_screen_resume(self) -> None:
        self._take_up()
        super().on_screen_resume()

    @property
    def reading(self) -> DivergenceReading:
        """Of the two that are compared."""
        return self._reading_of(self._indexes, self._matching)

    def _take_up(self) -> None:
        """Shows the reading of the two recordings in every panel."""
        reading = self.reading
        reading.changed = self._more_to_show
        for panel in (self.runs, self.a, self.b, self.counts, self.pairs):
            panel.reading = reading
            panel.invalidate()
        reading.ask()

    def divide(self, columns: int, rows: int) -> None:
        is_short = rows < SHORT_ROWS
        num_facts = 3 if is_short else 4
        self.runs.styles.height = num_facts
        self.query_one("#decided").styles.height = (rows - num_facts - 2 + 1) // 2
        left = columns // 2
        for first, second in ((self.a, self.b), (self.counts, self.pairs)):
            first.styles.width, second.styles.width = left, columns - left
        for panel in self.panels:
            panel.invalidate()

    def show(self) -> None:
        self.header.places = ("recordings",)
        super().show()

    def follow(self, target: Target) -> None:
        """Goes into a recording, at the step and to the request that the entry is about."""
        match target.kind:
            case "a" | "b":
                self.action_into(target.kind, target.key)
            case "pair":
                self._go_to_pair(target.key)
            case _:
                super().follow(target)

    def action_into(self, side: Side, request_id: str = "") -> None:
        """Goes into one of the two at the step in which they part, or to its last where it ended before.

        Selects the request, or whom the step is about.
        """
        runs = self.reading.runs
        difference = None if runs is None else runs.difference
        if difference is None:
            self.kvscope.say("they do not part" if runs is not None else "they are still being read")
            return
        assert runs is not None
        self._go(side, difference.step, request_id or runs.first_named(side))

    def _go_to_pair(self, request_id: str) -> None:
        runs = self.reading.runs
        pair = None if runs is None else next(p for p in runs.found.comparison.requests if p.request_id == request_id)
        if runs is None or pair is None:
            return
        side, step = first_sight(pair, 0 if runs.difference is None else runs.difference.step)
        self._go(side, step, runs.own_ids.get(request_id, request_id) if side == "b" else request_id)

    def _go(self, side: Side, step: int, request_id: str) -> None:
        index = self._indexes[0 if side == "a" else 1]
        self.close()
        self.kvscope.call_later(self.kvscope.recordings.show, index, step=step, request_id=request_id or None)

    def action_matching(self) -> None:
        """Matches requests otherwise."""
        self.reading.leave()
        self._matching = MATCHINGS[(MATCHINGS.index(self._matching) + 1) % len(MATCHINGS)]
        self.kvscope.say(f"requests are matched by {'id or content' if self._matching == 'auto' else self._matching}")
        self._take_up()
        self.show()

    def action_other(self) -> None:
        """Compares A with the next of the other recordings."""
        num = len(self.kvscope.recordings.all)
        a, b = self._indexes
        others = [index for index in range(num) if index != a]
        if len(others) == 1:
            self.kvscope.say("two recordings are open: there is no other to compare with")
            return
        self.reading.leave()
        self._indexes = a, others[(others.index(b) + 1) % len(others)]
        self._take_up()
        self.show()

    def action_nothing(self) -> None:
        """One is there already."""

    def command(self) -> list[str]:
        match = [] if self._matching == "auto" else ["--match", self._matching]
        return ["kvscope", "diff", *(str(timeline.path) for timeline in self.reading.timelines), *match]

    def end(self) -> None:
        self.reading.leave()
