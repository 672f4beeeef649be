"""What if: the recorded workload through the scheduler again, under several values of one setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from kvscope.analysis.latencies import Unit
from kvscope.analysis.setting_text import parse_sweep
from kvscope.analysis.spans import Span as WordSpan
from kvscope.analysis.spans import wrap
from kvscope.analysis.text import visible
from kvscope.analysis.whatif import Sweep, WhatIfStudy
from kvscope.errors import KvscopeError
from kvscope.tui.desk import Asker, WatchedTimeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.modals import GotoModal
from kvscope.tui.screens.place import Place
from kvscope.tui.view.lines import EMPTY, Line, Span
from kvscope.tui.view.sweep import SweepFigures, sweep_figures, sweep_lines, sweep_notes
from kvscope.tui.widgets.jump_panel import JumpPanel
from kvscope.tui.widgets.panel import Panel

MAX_VALUES = 16


class SweepAnswer:
    """The figures of each value, and what they are."""

    def __init__(self, sweep: Sweep) -> None:
        self.unit: Unit = "ns" if sweep.model is not None else "steps"
        self.rows: list[SweepFigures] = [sweep_figures(row, self.unit) for row in sweep.rows]
        sweep.rows.clear()  # the runs themselves are large, and not needed any more
        self.sweep = sweep


class SweepPanel(Panel):
    """The chart."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="sweep", is_ascii=is_ascii)
        self.title_text = ""
        self.asker: Asker[SweepAnswer] | None = None

    def build(self, width: int, height: int) -> Sequence[Line]:
        title = self.title("WHAT IF", (Span(self.title_text, "bold"),), width, (Span("o: other values", "dim"),))
        asker = self.asker
        if asker is None or asker.value is None:
            role = "bad" if asker is not None and asker.error else "dim"
            words = (WordSpan(self._waiting_words()),)
            rows = wrap(words, max(width - 3, 8))
            return [title, EMPTY, *((Span("   "), *(Span(span.text, role) for span in row)) for row in rows)]
        answer = asker.value
        return [
            title,
            EMPTY,
            *sweep_lines(answer.rows, answer.unit, width, self.model.glyphs),
            EMPTY,
            *sweep_notes(answer.sweep, width),
        ]

    def _waiting_words(self) -> str:
        asker = self.asker
        if asker is None:
            return ""
        if asker.error:
            return asker.error
        watch = asker.watch
        return "…" if watch is None else f"{watch.doing or 'reading the workload'} …"


class SweepScreen(Place):
    """One setting, several values."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "other_values", "other values", show=False, id="look.sweep"),
    ]

    IS_OF_STEP = False
    KEYS = (("← →", "step"), ("esc", "back"), ("o", "other values"), ("?", "help"))

    def __init__(self, model: ScreenModel, name: str, values: Sequence[Any], *, is_ascii: bool) -> None:
        super().__init__(model, is_ascii=is_ascii)
        self.name_and_values = name, list(values)
        self.panel = SweepPanel(model, is_ascii=is_ascii)

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.panel
        yield self.footer

    @property
    def lists(self) -> Sequence[JumpPanel]:
        return ()

    @property
    def panels(self) -> Sequence[Panel]:
        return (self.panel,)

    def on_mount(self) -> None:
        self.panel.asker = Asker(self.kvscope, self._more_to_show)
        super().on_mount()

    def divide(self, columns: int, rows: int) -> None:
        self.panel.styles.height = rows - 2
        self.panel.invalidate()

    def show(self) -> None:
        self.header.places = ("statistics", "what if")
        name, values = self.name_and_values
        self.panel.title_text = visible(f"{name} = {', '.join(map(str, values))}")
        if self.panel.asker is not None and not self.panel.asker.error:
            self.panel.asker.ask((name, *map(repr, values)), partial(_swept, name=name, values=values))
        super().show()

    def action_other_values(self) -> None:
        name, values = self.name_and_values
        ask_sweep(self, self._take, f"{name}={','.join(map(str, values))}")

    def _take(self, name: str, values: list[Any]) -> None:
        self.name_and_values = name, values
        if self.panel.asker is not None:
            self.panel.asker.value, self.panel.asker.error = None, ""
        self.panel.invalidate()
        self.show()

    def command(self) -> list[str]:
        assert self.model.timeline is not None
        name, values = self.name_and_values
        return ["kvscope", "whatif", str(self.model.timeline.path), "--sweep", f"{name}={','.join(map(str, values))}"]

    def end(self) -> None:
        if self.panel.asker is not None:
            self.panel.asker.leave()


def ask_sweep(place: Place, take: Callable[[str, list[Any]], None], text: str = "") -> None:
    """Asks for `NAME=A,B,C`, from `text` on, and hands it to `take(name, values)`."""

    def go(text: str) -> str | None:
        try:
            name, values = parse_sweep(text)
        except KvscopeError as error:
            return visible(error.message)
        if len(values) > MAX_VALUES:
            return f"{len(values)} values are too many for one look: {MAX_VALUES} at most"
        place.kvscope.call_later(take, name, values)
        return None

    place.kvscope.push_screen(
        GotoModal(
            "one setting by its vLLM name, several values",
            go,
            is_ascii=place.kvscope.is_ascii,
            placeholder="num_gpu_blocks=40,48,64",
            text=text,
        )
    )


def _swept(timeline: WatchedTimeline, name: str, values: Sequence[Any]) -> SweepAnswer:
    study = WhatIfStudy(timeline)
    found: Sweep | None = None
    for number, value in enumerate(values, 1):
        timeline.check()
        timeline.doing = visible(f"running it with {name} = {value}, {number} of {len(values)}")
        one = study.sweep(name, [value], {})
        if found is None:
            found = one
        else:
            found.rows.extend(one.rows)
    assert found is not None
    return SweepAnswer(found)
