"""Statistics: the figures of the whole run, and what stands out in it."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.place import LIST_KEYS, TwoLists
from kvscope.tui.screens.sweep import SweepScreen, ask_sweep
from kvscope.tui.view.layout import NARROW_COLUMNS, SHORT_ROWS, TimelineLayout
from kvscope.tui.view.lines import Target
from kvscope.tui.view.statistics import next_finding
from kvscope.tui.widgets.lines_view import LinesView
from kvscope.tui.widgets.statistics_panels import FindingsPanel, NumbersPanel, StatisticsReading, WholeRunPanel


class StatisticsScreen(TwoLists):
    """The figures of the recording. In a narrow terminal `tab` swaps figures and findings."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "event(1)", "next finding", show=False, id="events.next_finding"),
        Binding("N", "event(-1)", "previous finding", show=False, id="events.previous_finding"),
        Binding("o", "what_if", "what if: a setting with other values", show=False, id="look.what_if"),
    ]

    IS_OF_STEP = False
    KEYS = (
        *LIST_KEYS,
        ("n N", "finding"),
        ("o", "what if"),
        ("w", "why"),
        ("?", "help"),
    )

    def __init__(self, model: ScreenModel, reading: StatisticsReading, *, is_ascii: bool) -> None:
        super().__init__(model, is_ascii=is_ascii)
        self.reading = reading
        self.top = self.run = WholeRunPanel(model, reading, is_ascii=is_ascii)
        self.left = self.findings = FindingsPanel(model, reading, is_ascii=is_ascii)
        self.right = self.numbers = NumbersPanel(model, reading, is_ascii=is_ascii)
        self._is_narrow = False

    def on_mount(self) -> None:
        self.reading.changed = self._more_to_show
        super().on_mount()

    def on_screen_resume(self) -> None:
        self.reading.changed = self._more_to_show
        super().on_screen_resume()

    def divide(self, columns: int, rows: int) -> None:
        bars, marks, gutter = (1, 1, 13) if rows < SHORT_ROWS or columns < NARROW_COLUMNS else (3, 2, 19)
        self.run.rows_of = TimelineLayout(token_rows=bars, block_rows=bars, mark_rows=marks, life_rows=0, gutter=gutter)
        self.run.styles.height = self.run.num_rows
        self._is_narrow = columns < NARROW_COLUMNS
        self.divide_lists(columns, columns // 2)
        if self._is_narrow:  # one of them at a time
            self.findings.styles.width = self.numbers.styles.width = columns
        self.findings.display = not self._is_narrow or not self.numbers.has_focus
        self.numbers.display = not self._is_narrow or not self.findings.display

    def show(self) -> None:
        self.header.places = ("statistics",)
        self.reading.is_looked_at = True
        self.reading.ask()
        super().show()

    def action_other_panel(self, direction: int) -> None:
        if self._is_narrow:
            shows_numbers = not self.numbers.display
            self.numbers.display, self.findings.display = shows_numbers, not shows_numbers
            self.focus_first()
        else:
            super().action_other_panel(direction)

    def action_event(self, direction: int) -> None:
        """Goes to the next finding instead of the next event."""
        findings = self.reading.findings
        if findings is None:
            self.kvscope.say("the detectors are still at work")
            return
        found = next_finding(findings, self.model.wanted_step, direction)
        if found is None:
            where = "after" if direction > 0 else "before"
            self.kvscope.say(f"no finding {where} step {self.model.wanted_step}")
            return
        self._go_to(found)
        self.findings.choose(found)

    def action_what_if(self) -> None:
        """Asks for a setting and values, and opens what they would have changed."""
        ask_sweep(self, self._open_sweep)

    def _open_sweep(self, name: str, values: list[Any]) -> None:
        self.reading.is_looked_at = False
        self.kvscope.push_screen(SweepScreen(self.model, name, values, is_ascii=self.kvscope.is_ascii))

    def _go_to(self, number: int) -> None:
        findings = self.reading.findings or ()
        finding = findings[number]
        about = finding.request_ids[0] if finding.request_ids else ""
        self.kvscope.navigation.follow(Target("step", str(finding.first_step), about))

    def action_why(self, of_whole_life: bool = False) -> None:
        """Asks about the request of the chosen finding, at its first step; esc leads back to the list."""
        target = self.findings.target if self.findings.has_focus else None
        if target is not None and target.kind == "finding":
            self._go_to(int(target.key))
        super().action_why(of_whole_life)

    def follow(self, target: Target) -> None:
        """A finding or a step is looked at on the main screen; a request opens its place."""
        if target.kind == "finding":
            self._go_to(int(target.key))
            self.close()
            return
        super().follow(target)
        if target.kind == "step":
            self.close()

    def click_beside(self, view: LinesView, column: int) -> None:
        if view is self.run:
            step = self.run.step_at(column)
            if step is not None:
                self.kvscope.navigation.move_to(step)

    def command(self) -> list[str]:
        return ["kvscope", "stats", str(self.reading.timeline.path)]

    def end(self) -> None:
        """What is read goes on at leisure: who comes back finds it there."""
        self.reading.changed = lambda: None
        self.reading.is_looked_at = False
