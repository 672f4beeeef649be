"""A part of the screen that shows the model: builds its lines when the model, its size or its focus changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events

from kvscope.analysis.text import visible
from kvscope.errors import KvscopeError
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.lines import Line, Span, rule
from kvscope.tui.widgets.lines_view import LinesView


class Panel(LinesView):
    """Base of the panels. Subclasses say what they show in `build`."""

    IS_OF_STEP: ClassVar[bool] = False
    """Shows the step and what was before: what comes behind it while an engine runs changes nothing here."""

    SHOWS_LIFE: ClassVar[bool] = False
    """Shows a life line, which becomes complete a little later than the rest."""

    def __init__(self, model: ScreenModel, *, id: str, is_ascii: bool, can_focus: bool = False) -> None:
        super().__init__(id=id, is_ascii=is_ascii)
        self.model = model
        self.can_focus = can_focus
        self.leave_hint = ""
        """How to leave, where the panel has the screen for itself; else empty."""
        self._shown: tuple[int, int, int, int, bool] | None = None

    def build(self, width: int, height: int) -> Sequence[Line]:
        """Returns the lines for the model as it is now."""
        raise NotImplementedError

    def all_lines(self) -> Sequence[Line]:
        """Returns all that there is to show, also what has no room, to be taken along."""
        return self._built(self.size.width or self.app.size.width, self.size.height or self.app.size.height)

    def show(self) -> None:
        """Brings the lines up to date."""
        width, height = self.size
        num_news = 0 if self.IS_OF_STEP else self.model.num_news
        key = (self.model.version, num_news, width, height, self.has_focus)
        if width and height and key != self._shown:
            self._shown = key
            self.set_lines(self._built(width, height))

    def _built(self, width: int, height: int) -> Sequence[Line]:
        """Returns the lines; a recording that cannot be read here says so in their place, the rest goes on."""
        try:
            return self.build(width, height)
        except KvscopeError as error:
            return [(Span(f" ✖ {visible(error.message)}", "bad"),)]

    @property
    def is_maximised(self) -> bool:
        """It has the screen for itself: what it leaves out elsewhere has room here."""
        return bool(self.leave_hint)

    def invalidate(self) -> None:
        """Builds the lines anew at the next `show`, whatever the model says."""
        self._shown = None

    def on_resize(self, event: events.Resize) -> None:
        self.show()

    def on_focus(self, event: events.Focus) -> None:
        self.show()

    def on_blur(self, event: events.Blur) -> None:
        self.show()

    def title(self, name: str, words: Sequence[Span], width: int, right: Sequence[Span] = ()) -> Line:
        """Returns the panel's title rule; it is heavy while the panel has the focus."""
        if self.leave_hint and not right:
            right = (Span(self.leave_hint, "dim"),)
        spans: list[Span] = [Span(name, "bold")]
        if words:
            spans += [Span(" ─ ", "rule"), *words]
        bar = "━" if self.has_focus else "─"
        return rule(width, spans, right, is_focused=self.has_focus, bar=bar)
