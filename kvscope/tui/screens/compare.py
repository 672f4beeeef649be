"""Compare: a marked step A against the step that is looked at."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.place import LIST_KEYS, TwoLists
from kvscope.tui.view.layout import NARROW_COLUMNS, SHORT_ROWS, WIDE_COLUMNS
from kvscope.tui.view.lines import Target
from kvscope.tui.widgets.compare_panels import BetweenPanel, Comparison, DifferencesPanel, StepsPanel


class CompareScreen(TwoLists):
    """Two steps side by side."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "compare", "this step is A from now on", show=False, id="look.mark_here"),
    ]

    IS_OF_STEP = False
    KEYS = (
        *LIST_KEYS,
        ("d", "A is here"),
        ("D", "clear A"),
        ("n N", "event"),
        ("?", "help"),
    )

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, is_ascii=is_ascii)
        self.comparison = Comparison(model)
        self.top = StepsPanel(self.comparison, is_ascii=is_ascii)
        self.left = DifferencesPanel(self.comparison, is_ascii=is_ascii)
        self.right = BetweenPanel(self.comparison, is_ascii=is_ascii)

    def on_mount(self) -> None:
        self.comparison.attach(self.kvscope, self._more_to_show)
        super().on_mount()

    def divide(self, columns: int, rows: int) -> None:
        self.top.styles.height = 2 if rows < SHORT_ROWS else 4
        left = 40 if columns < NARROW_COLUMNS else 64 if columns >= WIDE_COLUMNS else 47
        self.divide_lists(columns, left)

    def show(self) -> None:
        self.header.places = ("compare",)
        self.comparison.ask()
        super().show()

    def follow(self, target: Target) -> None:
        """A request opens its place at step B; a step is looked at on the main screen, and A stays marked."""
        super().follow(target)
        if target.kind == "step":
            self.close()

    def command(self) -> list[str]:
        assert self.model.timeline is not None
        steps = sorted((self.model.step if self.model.mark_step is None else self.model.mark_step, self.model.step))
        return ["kvscope", "diff", str(self.model.timeline.path), "--steps", *map(str, steps)]

    def end(self) -> None:
        self.comparison.leave()
