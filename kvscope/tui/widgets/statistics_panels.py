"""The panels of the place "statistics". Figures first, then the detectors: two passes in a thread of their own.

What was read so far is shown. They go on, at leisure, when the place is left: who comes back finds them further on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvscope.analysis.detectors import find_all
from kvscope.analysis.finding import Finding
from kvscope.analysis.stats import RunStatistics, read_statistics
from kvscope.replay.timeline import Timeline
from kvscope.tui.desk import Asker, WatchedTimeline
from kvscope.tui.markers import Found, Reading
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.entries import Entry, heading
from kvscope.tui.view.layout import TimelineLayout
from kvscope.tui.view.lines import EMPTY, Line, Span, rule
from kvscope.tui.view.statistics import (
    RunFigures,
    figure_entries,
    finding_entries,
    finding_marks,
    histogram_entries,
    latency_entries,
    run_figures,
    run_title,
    warning_entries,
    whole_run,
    worst_findings,
)
from kvscope.tui.view.timeline import TimelineFacts, timeline_lines
from kvscope.tui.view.window import Window
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class StatisticsReading:
    """The figures and findings of a recording up to the step that was its last when they were asked for."""

    def __init__(self, app: KvscopeApp, timeline: Timeline) -> None:
        self._app = app
        self.timeline = timeline
        self.last_step = timeline.last_step
        self.changed: Callable[[], None] = lambda: None
        """Called when there is more to show; whoever shows it sets it."""
        self.is_looked_at = False
        self._figures: Asker[RunFigures] = Asker(app, self._more, app.run_desk)
        self._findings: Asker[Found] = Asker(app, self._more, app.run_desk)
        self._told_step = -1

    def _more(self) -> None:
        self.ask()
        early = self._early_findings
        if early is not None and early.last_step > self._told_step:
            self._told_step = early.last_step
            self._app.markers.take(self.timeline.path, early.last_step, early.found)
        self.changed()

    def ask(self) -> None:
        """Asks for what is not there yet: the figures, after them the findings."""
        if self._figures.value is None and not self._figures.error:
            self._figures.ask("figures", _figures)
        elif self._findings.value is None and not self._findings.error:
            self._findings.value = self._app.markers.known(self.timeline.path, self.last_step)
            if self._findings.value is None:
                self._findings.ask("findings", _findings)
        elif self._findings.value is not None:
            self._app.markers.take(self.timeline.path, self.last_step, self._findings.value)

    @property
    def figures(self) -> RunFigures | None:
        """Those of the steps that were read so far; None before there are any."""
        return self._figures.early(RunFigures) or self._figures.value

    @property
    def _early_findings(self) -> Reading | None:
        return self._findings.early(Reading)

    @property
    def _found(self) -> Found | None:
        early = self._early_findings
        return self._findings.value if early is None else early.found

    @property
    def findings(self) -> Sequence[Finding] | None:
        """Those that are told, of the steps so far; None before there are any."""
        return None if self._found is None else self._found[0]

    @property
    def num_more_findings(self) -> int:
        return 0 if self._found is None else self._found[1]

    @property
    def is_complete(self) -> bool:
        """The detectors are through."""
        return self._findings.value is not None

    @property
    def waiting_words(self) -> str:
        """What is being read, and how far; or what is wrong."""
        for asker, what in ((self._figures, "figures"), (self._findings, "detectors")):
            if asker.error:
                return asker.error
            if asker.value is None:
                if asker.watch is None:
                    return f"{what} …"
                return f"{what} at step {asker.watch.step:,} of {asker.watch.last_step:,} …"
        return ""

    def leave(self) -> None:
        """Leaves what is being read; asking again starts anew."""
        self._figures.leave()
        self._findings.leave()


def _figures(timeline: WatchedTimeline) -> RunFigures:
    def tell(found: RunStatistics) -> None:
        timeline.early = run_figures(found)

    return run_figures(read_statistics(timeline, tell))


def _findings(timeline: WatchedTimeline) -> Found:
    def tell(findings: list[Finding], step: int) -> None:
        timeline.early = Reading(step, worst_findings(findings))

    return worst_findings(find_all(timeline, tell))


class WholeRunPanel(Panel):
    """The timeline of the whole run, with a row of findings; a click seeks."""

    def __init__(self, model: ScreenModel, reading: StatisticsReading, *, is_ascii: bool) -> None:
        super().__init__(model, id="run", is_ascii=is_ascii)
        self.reading = reading
        self.rows_of = TimelineLayout(token_rows=1, block_rows=1, mark_rows=1, life_rows=0, gutter=13)
        self._window: Window | None = None

    def build(self, width: int, height: int) -> Sequence[Line]:
        model, reading = self.model, self.reading
        waiting = reading.waiting_words
        right: Line = (Span(waiting, "evict"),) if waiting else (Span("n N: findings", "dim"),)
        title = self.title("STATISTICS", run_title(reading.figures, max(width - 40, 20)), width, right)
        if model.moment is None or model.timeline is None:
            return [title]
        layout = self.rows_of
        window = self._window = whole_run(model.first_step, model.last_step, max(width - layout.gutter, 1))
        summaries = model.timeline.summaries(window.first_step, window.num_columns, window.steps_per_column)
        facts = TimelineFacts(
            window=window,
            summaries=summaries,
            state=model.moment.state,
            step=model.step,
            selected_id=None,
            life="",
            life_roles=(),
        )
        lines = timeline_lines(facts, layout, width, model.glyphs)
        marks = finding_marks(reading.findings or (), window, model.step, layout.gutter)
        return [title, *lines[:-1], marks, lines[-1]][:height]

    @property
    def num_rows(self) -> int:
        return self.rows_of.rows + 2

    def step_at(self, column: int) -> int | None:
        """Returns the step under a column, None in the gutter."""
        if self._window is None or column < self.rows_of.gutter:
            return None
        step = self._window.first_step + (column - self.rows_of.gutter) * self._window.steps_per_column
        return min(step, self.model.last_step)


class NumbersPanel(JumpPanel):
    """Latencies, the other figures in words, the histogram of gaps."""

    def __init__(self, model: ScreenModel, reading: StatisticsReading, *, is_ascii: bool) -> None:
        super().__init__(model, id="numbers", is_ascii=is_ascii)
        self.reading = reading

    def head(self, width: int, height: int) -> Sequence[Line]:
        return [self.title("LATENCIES AND FIGURES", (), width)]

    def entries(self, width: int) -> Sequence[Entry]:
        figures = self.reading.figures
        if figures is None:
            return [heading((Span(f"   {self.reading.waiting_words}", "dim"),))]
        found = figures.statistics
        unit = "ms" if found.latencies.unit == "ns" else "steps"
        words = (Span("GAPS BETWEEN TOKENS", "bold"), Span(" ─ ", "rule"), Span(f"ITL, {unit}", "dim"))
        return [
            *latency_entries(found, width),
            heading(EMPTY),
            *figure_entries(found, width),
            heading(EMPTY),
            heading(rule(width, words, bar="─")),
            *histogram_entries(figures.gaps, found.latencies.unit, width, self.model.glyphs),
        ]


class FindingsPanel(JumpPanel):
    """What stands out: wrong readings that lie near, and what the detectors found."""

    def __init__(self, model: ScreenModel, reading: StatisticsReading, *, is_ascii: bool) -> None:
        super().__init__(model, id="findings", is_ascii=is_ascii)
        self.reading = reading

    def head(self, width: int, height: int) -> Sequence[Line]:
        findings = self.reading.findings
        num_found = 0 if findings is None else len(findings) + self.reading.num_more_findings
        right = "" if findings is None else f"{num_found} found, enter jumps"
        return [self.title("WHAT STANDS OUT", (), width, (Span(right, "dim"),) if right else ())]

    def entries(self, width: int) -> Sequence[Entry]:
        reading = self.reading
        figures = reading.figures
        entries = [] if figures is None else warning_entries(figures.statistics.warnings, width)
        if reading.findings is None:
            return [*entries, heading((Span(f"   {reading.waiting_words}", "dim"),))]
        if not reading.is_complete:
            entries = [heading((Span(f"   … {reading.waiting_words}", "dim"),)), heading(EMPTY), *entries]
        return [*finding_entries(reading.findings, reading.num_more_findings, width), heading(EMPTY), *entries]

    def choose(self, finding: int) -> None:
        """Chooses a finding by its number."""
        self.current = finding
        self.invalidate()
        self.show()
