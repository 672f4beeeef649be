"""A form: settings by their names, one line each, errors beside their fields. Nothing typed is lost by an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import Input
from textual.worker import Worker

from kvscope.errors import bounded
from kvscope.tui.closing import Modal
from kvscope.tui.screens.modals import Box
from kvscope.tui.view.form import (
    VALUE_COLUMNS,
    FormField,
    below_lines,
    beside_line,
    first_error,
    name_columns,
    name_line,
)
from kvscope.tui.view.lines import Line, Span
from kvscope.tui.widgets.lines_view import LinesView

Texts = Mapping[str, str]
"""What stands in the fields, by their names."""

Apply = Callable[[Texts], Awaitable[Mapping[str, str]]]
"""Does what the form is for. Returns what is wrong, by field; "" names an error of no single field."""

WIDTH = 100
ROWS_AROUND = 11
"""Frame, title and the lines below the fields."""


NEIGHBOURS = {"up": -1, "down": 1, "shift+tab": -1, "tab": 1}
"""Keys that go to another field. The list would scroll at some of them."""


class FieldInput(Input):
    """A field's line to type."""

    class Left(Message):
        """Another field is wanted, so many further on."""

        def __init__(self, offset: int) -> None:
            super().__init__()
            self.offset = offset

    def __init__(self, field: FormField) -> None:
        super().__init__(field.text, compact=True, placeholder=field.default, select_on_focus=False)
        self.field = field
        self.cursor_position = len(field.text)

    async def on_key(self, event: events.Key) -> None:
        """Does at once what the key is bound to: left to the app, it would be done behind letters typed after it."""
        if event.key == "space" and self.field.choices:
            self._choose_next()
        elif event.key in NEIGHBOURS:
            self.post_message(self.Left(NEIGHBOURS[event.key]))
        elif bindings := self._bindings.key_to_bindings.get(event.key):
            await self.run_action(bindings[-1].action)
        else:
            return
        event.stop()
        event.prevent_default()

    def _choose_next(self) -> None:
        shown = self.value.strip() or self.field.default
        place = self.field.choices.index(shown) if shown in self.field.choices else -1
        self.value = self.field.choices[(place + 1) % len(self.field.choices)]
        self.cursor_position = len(self.value)


class FormModal(Modal[None]):
    """Fields to fill in. Enter applies all of them, esc leaves everything as it was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "close", show=False),
    ]
    AUTO_FOCUS = ""
    KEYS = "⏎ applies · ↑ ↓ field · esc leaves all as it was"

    def __init__(self, title: str, fields: Sequence[FormField], apply: Apply, *, is_ascii: bool) -> None:
        super().__init__()
        self.fields = tuple(fields)
        self.errors: dict[str, str] = {}
        self._apply = apply
        self._title = LinesView(id="form-title", is_ascii=is_ascii)
        self._title_text = title
        self._inputs = [FieldInput(field) for field in self.fields]
        self._names = [LinesView(is_ascii=is_ascii) for _ in self.fields]
        self._beside = [LinesView(is_ascii=is_ascii) for _ in self.fields]
        self._below = LinesView(id="form-below", is_ascii=is_ascii)
        self._applying: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        with Box():
            yield self._title
            with VerticalScroll(id="form-fields", can_focus=False):
                for name, line, beside in zip(self._names, self._inputs, self._beside, strict=True):
                    yield Horizontal(name, line, beside, classes="form-row")
            yield self._below

    def on_mount(self) -> None:
        self._arrange()
        self._inputs[self.first_field()].focus()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def first_field(self) -> int:
        """Returns the field that the form opens with."""
        return 0

    def notes(self) -> Sequence[Line]:
        """Returns lines that say what the fields would lead to."""
        return ()

    @property
    def texts(self) -> dict[str, str]:
        return {line.field.name: line.value for line in self._inputs}

    @property
    def current(self) -> int:
        return next((index for index, line in enumerate(self._inputs) if line.has_focus), 0)

    @property
    def inner_width(self) -> int:
        """Columns inside the frame."""
        return min(self.app.size.width - 2, WIDTH) - 4

    def _arrange(self) -> None:
        columns = name_columns(self.fields)
        for view in self._names:
            view.styles.width = columns
        for line in self._inputs:
            line.styles.width = VALUE_COLUMNS
        room = max(self.app.size.height - ROWS_AROUND, 3)
        self.query_one("#form-fields").styles.height = min(len(self.fields), room)
        self._title.set_lines([(Span(self._title_text, "bold"),)])
        self.show()

    def show(self) -> None:
        """Brings everything beside and below the fields up to date."""
        current = self.current
        room = self.inner_width - name_columns(self.fields) - VALUE_COLUMNS - 2
        for index, field in enumerate(self.fields):
            self._names[index].set_lines([name_line(field, is_current=index == current)])
            self._beside[index].set_lines([beside_line(field, bounded(self.errors.get(field.name, "")), room)])
        field = self.fields[current]
        error = bounded(self.errors.get(field.name, "") or self.errors.get("", ""))
        lines = below_lines(field, error, self.notes(), self.inner_width, self.KEYS)
        self._below.styles.height = len(lines)
        self._below.set_lines(lines)

    def fill(self, texts: Texts) -> None:
        """Puts texts into fields."""
        for line in self._inputs:
            if line.field.name in texts:
                line.value = texts[line.field.name]
                line.cursor_position = len(line.value)

    def show_errors(self, errors: Mapping[str, str]) -> None:
        """Shows what is wrong, and goes to the first field that has something."""
        self.errors = dict(errors)
        place = first_error(self.fields, self.errors)
        if place is not None:
            self._inputs[place].focus()
            self._inputs[place].cursor_position = len(self._inputs[place].value)
        self.show()

    @on(FieldInput.Left)
    def _go_on(self, message: FieldInput.Left) -> None:
        self._inputs[(self.current + message.offset) % len(self._inputs)].focus()

    def action_leave(self) -> None:
        """Closes the form; while it is being applied, leaves that alone and stays."""
        if self._applying is not None:
            self._applying.cancel()
            self._applying = None
            self.show()
        else:
            self.dismiss()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.show()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        """What was wrong with a field is so no longer, as far as is known."""
        if isinstance(event.input, FieldInput) and (
            self.errors.pop(event.input.field.name, "") or self.errors.pop("", "")
        ):
            self.show()
        self.texts_changed()

    def texts_changed(self) -> None:
        """Called with every change of a field."""

    @on(Input.Submitted)
    def _submitted(self) -> None:
        if self._applying is None:
            self._applying = self.run_worker(self._do(), group="form")

    async def _do(self) -> None:
        errors = await self._apply(self.texts)
        self._applying = None
        if errors:
            self.show_errors(errors)
        elif self.is_current:
            self.dismiss()
