"""What the step decided: the budget split in the title, then a sentence for each decision.

Inside a step the title names the event; its own words come first, and the sentence that tells of it is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from kvscope.analysis.event_subjects import sentence_of
from kvscope.analysis.event_words import event_sentence
from kvscope.analysis.sentences import sentences, step_title
from kvscope.analysis.spans import Sentence
from kvscope.analysis.text import visible
from kvscope.events import Event
from kvscope.replay.timeline import Moment, Timeline
from kvscope.tui.keymap import Keys
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.lines import Line, Span, put_behind
from kvscope.tui.view.marks import among, mark_sentences
from kvscope.tui.view.step import SentencesView, event_rows, event_title, marked_rows, sentences_view, title_line
from kvscope.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

MIN_ROWS_FOR_WORDS = (0, 9, 20)
"""Of how many rows a panel must be to have one, two and three for the words of an event."""


class StepPanel(Panel):
    """The sentences of the step; `j k` move from one to the next, enter opens all."""

    IS_OF_STEP = True

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="step", is_ascii=is_ascii, can_focus=True)
        self.current = 0
        self.first = 0
        self._decisions: list[Sentence] = []
        self._sentences: list[Sentence] = []
        """What is noted on the step, and what it decided."""
        self._said_of: Moment | None = None
        self._shown_at: tuple[Timeline | None, int] = (None, -1)
        self._event: Event | None = None
        self._marked: int | None = None
        """The sentence that tells of the event."""
        self._view = SentencesView((), ())
        self._room = (1, 1)
        """Columns and rows of the sentences."""

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        if model.moment is None or model.timeline is None:
            return [self.title("STEP", (), width), *self._without_step(width)][:height]
        if self._shown_at != (model.timeline, model.step):
            self._shown_at, self.current, self.first = (model.timeline, model.step), 0, 0
        whole = model.walk.whole or model.moment
        if self._said_of is not whole:
            self._decisions, self._said_of = sentences(model.timeline, whole), whole
        self._sentences = among(self._mark_sentences(), self._decisions)
        event, number = model.walk.event, model.walk.number
        if event is None or number is None:
            title, hint = title_line(model.step, step_title(model.timeline, whole), width - 4), ""
            rows: list[Line] = []
        else:
            title = event_title(model.step, number, model.walk.num_events, type(event).__name__)
            hint = f"{self._keys.shown('[ ]')} events, {self._keys.shown('esc')} whole step"
            num_rows = sum(height >= rows for rows in MIN_ROWS_FOR_WORDS)
            rows = event_rows(event_sentence(event), width, num_rows)
        self._room = width, max(height - 1 - len(rows), 0)
        self._view = sentences_view(self._sentences, *self._room, self.first)
        self._mark(event)
        return [self.title_rule(title, width, hint), *rows, *self._sentence_lines(width)]

    @property
    def _keys(self) -> Keys:
        return cast("KvscopeApp", self.app).keys

    def _mark_sentences(self) -> list[Sentence]:
        """What the marks say that stand in the cursor's column of the timeline."""
        model = self.model
        first = last = model.step
        if model.window is not None and model.step in model.window:
            first = model.step - (model.step - model.window.first_step) % model.window.steps_per_column
            last = first + model.window.steps_per_column - 1
        return mark_sentences(model.marks, first, last, model.glyphs)

    def _mark(self, event: Event | None) -> None:
        """Marks the sentence that tells of the event, and brings it into view when the event is another one."""
        if event is not self._event:
            self._event = event
            self._marked = None if event is None else sentence_of(self._sentences, event)
            if self._marked is not None:
                self.current = self._marked
                self._reveal()

    def _sentence_lines(self, width: int) -> list[Line]:
        lines = marked_rows(self._view, self._marked, self.model.glyphs)
        if not self.has_focus and self._marked is None:
            return lines
        current = self.current if self.has_focus else self._marked
        return [
            put_behind((*line, Span(" " * width)), "row") if owner == current else line
            for line, owner in zip(lines, self._view.sentence_of, strict=True)
        ]

    def title_rule(self, title: Line, width: int, hint: str) -> Line:
        name, _, *words = title
        return self.title(name.text, words, width, (Span(hint, "dim"),) if hint else ())

    def _without_step(self, width: int) -> list[Line]:
        """What is shown before the first step: what the engine does meanwhile, or its error."""
        status = self.model.status
        if self.model.error:
            return [(Span(f" ✖ {visible(self.model.error)}", "bad"),)]
        if status is None:
            return [(Span("   the recording has no step", "dim"),)]
        detail = visible(status.detail)
        if status.phase in ("failed", "stopped"):
            lines: list[Line] = [(Span(" ✖ ", "bold bad"), Span(f"The engine is gone: {detail}", "bold"))]
            lines += [(Span(f"   {visible(line)}", "dim"),) for line in status.error.strip().splitlines()[-4:]]
            return lines
        if status.phase != "loading":
            return [(Span("   The engine is ready. ", "text"), Span("Type a prompt below.", "dim"))]
        lines = [(Span("   Loading: ", "bold"), Span(detail or "the model"))]
        if status.progress is not None:
            room = min(width - 6, 60)
            filled = round(min(max(status.progress, 0.0), 1.0) * room)
            bar = (Span("   "), Span("━" * filled, "decode"), Span("─" * (room - filled), "rule"))
            lines.append((*bar, Span(f" {status.progress:.0%}", "dim")))
        return lines

    def move(self, num_sentences: int) -> None:
        """Walks the sentences; what lies below scrolls in."""
        last = len(self._sentences) - 1
        self.current = min(max(self.current + num_sentences, 0), max(last, 0))
        self._reveal()
        self.invalidate()
        self.show()

    def _reveal(self) -> None:
        """Scrolls as far as the current sentence needs."""
        self.first = min(self.first, self.current)
        self._view = sentences_view(self._sentences, *self._room, self.first)
        while self.current not in self._view.sentence_of and self.first < self.current:
            self.first += 1
            self._view = sentences_view(self._sentences, *self._room, self.first)

    @property
    def all_sentences(self) -> Sequence[Sentence]:
        return self._sentences
