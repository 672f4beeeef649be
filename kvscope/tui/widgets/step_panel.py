"""What the step decided: the budget split in the title, then a sentence for each decision."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.analysis.sentences import sentences, step_title
from kvscope.analysis.spans import Sentence
from kvscope.analysis.text import visible
from kvscope.replay.timeline import Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.lines import Line, Span, put_behind
from kvscope.tui.view.step import SentencesView, sentences_view, title_line
from kvscope.tui.widgets.panel import Panel


class StepPanel(Panel):
    """The sentences of the step; `j k` move from one to the next, enter opens all."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="step", is_ascii=is_ascii, can_focus=True)
        self.current = 0
        self.first = 0
        self._sentences: list[Sentence] = []
        self._shown_at: tuple[Timeline | None, int] = (None, -1)
        self._view = SentencesView((), ())

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        if model.moment is None or model.timeline is None:
            return [self.title("STEP", (), width), *self._without_step(width)][:height]
        if self._shown_at != (model.timeline, model.step):
            self._shown_at, self.current, self.first = (model.timeline, model.step), 0, 0
        self._sentences = sentences(model.timeline, model.moment)
        title = title_line(model.step, step_title(model.timeline, model.moment), width - 4)
        self._view = sentences_view(self._sentences, width, height - 1, self.first)
        lines = list(self._view.lines)
        if self.has_focus:
            lines = [
                put_behind((*line, Span(" " * width)), "row") if owner == self.current else line
                for line, owner in zip(lines, self._view.sentence_of, strict=True)
            ]
        return [self.title_rule(title, width), *lines]

    def title_rule(self, title: Line, width: int) -> Line:
        name, _, *words = title
        return self.title(name.text, words, width)

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
        self.first = min(self.first, self.current)
        while self.current not in self._view.sentence_of and self.first < self.current:
            self.first += 1
            self._view = sentences_view(self._sentences, self.size.width, self.size.height - 1, self.first)
        self.invalidate()
        self.show()

    @property
    def all_sentences(self) -> Sequence[Sentence]:
        return self._sentences
