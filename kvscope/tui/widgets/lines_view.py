"""The one widget that paints lines of spans, row by row, with the Line API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import RenderResult
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region, Spacing
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from kvscope.analysis.text import cell_width, visible
from kvscope.tui.palette import span_style
from kvscope.tui.view.glyphs import to_ascii
from kvscope.tui.view.lines import EMPTY, Line, Target

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

_NO_BORDER, _LEFT_BORDER = Spacing(), Spacing(0, 0, 0, 1)


class LinesView(Widget):
    """Shows lines; what changed is painted again, and nothing else."""

    ALLOW_SELECT = False

    SHOWS_TIME: ClassVar[bool] = False
    """Its columns are steps."""

    class Followed(Message):
        """A click on something that has an identity; `chain`: the how many-th in quick succession."""

        def __init__(self, target: Target, chain: int) -> None:
            super().__init__()
            self.target = target
            self.chain = chain

    class Clicked(Message):
        """A click on a row, beside any target."""

        def __init__(self, view: LinesView, row: int, column: int, chain: int) -> None:
            super().__init__()
            self.view = view
            self.row = row
            self.column = column
            self.chain = chain

    class Turned(Message):
        """The wheel was turned over the view: positive towards the end."""

        def __init__(self, view: LinesView, num_notches: int, *, is_with_ctrl: bool) -> None:
            super().__init__()
            self.view = view
            self.num_notches = num_notches
            self.is_with_ctrl = is_with_ctrl

    def __init__(self, *, id: str | None = None, is_ascii: bool = False) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._is_ascii = is_ascii
        self._palette: dict[tuple[str, str], Style] = {}
        self._strips: dict[int, Strip] = {}
        self._border: Strip | None = None
        """What stands on the left of each row."""

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Shows other lines; paints those rows again that differ."""
        old, self.lines = self.lines, lines
        rows = range(max(len(old), len(lines)))
        changed = {row: _row(old, row) for row in rows if _row(old, row) != _row(lines, row)}
        for row in changed:
            self._strips.pop(row, None)
        if changed and not cast("KvscopeApp", self.app).painter.take(self, changed):
            self.repaint(changed)

    def repaint(self, rows: Iterable[int]) -> None:
        """Has Textual paint some rows again."""
        width = self.size.width
        self.refresh(*(Region(0, row, width, 1) for row in rows))

    def line(self, row: int) -> Line:
        """Returns what a row shows."""
        return _row(self.lines, row)

    def render(self) -> RenderResult:
        """Never used: `render_line` paints."""
        return ""

    def render_line(self, y: int) -> Strip:
        """Returns row `y`, as wide as the widget."""
        width = self.size.width
        strip = self._strips.get(y)
        if strip is None or strip.cell_length != width:
            strip = self._strips[y] = self._strip(self.line(y), width)
        return strip

    @property
    def paints_itself(self) -> bool:
        """Nothing but lines is to be seen of it, with a border at most on their left."""
        return self.styles.gutter in (_NO_BORDER, _LEFT_BORDER) and self.opacity == 1.0

    def render_lines(self, crop: Region) -> list[Strip]:
        """Returns the rows of a region: the lines as they were painted, where the general way of widgets would cut,
        style and join every row anew."""
        if not self.paints_itself:
            return super().render_lines(crop)
        strips = [self._filtered(self.render_line(y)) for y in crop.line_range]
        if self.styles.gutter.left:
            if self._border is None:
                [self._border] = super().render_lines(Region(0, 0, 1, 1))
            strips = [Strip([*self._border, *strip], strip.cell_length + 1) for strip in strips]
        if crop.column_span != (0, self.outer_size.width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Returns the filters without that for the sixteen colours of terminals, which themes do not have."""
        return [each for each in super().get_line_filters() if not isinstance(each, ANSIToTruecolor)]

    def painted(self, line: Line, width: int) -> Strip:
        """Returns a line in so many cells, as it goes to the terminal."""
        return self._filtered(self._strip(line, width))

    def _filtered(self, strip: Strip) -> Strip:
        filters = self.get_line_filters()
        if filters:
            background = self.background_colors[1]
            for each in filters:
                strip = strip.apply_filter(each, background)
        return strip

    def _strip(self, line: Line, width: int) -> Strip:
        segments: list[Segment] = []
        used = 0
        for span in line:
            # Views show data by `visible` already; whatever comes here besides is never obeyed by the terminal.
            text = span.text if span.text.isprintable() else visible(span.text)
            if self._is_ascii:
                text = to_ascii(text)
            segments.append(Segment(text, self.span_style(span.role, span.on)))
            used += cell_width(text)
        base = self.span_style("text", "")
        if used < width:
            segments.append(Segment(" " * (width - used), base))
            used = width
        strip = Strip(segments, used)
        return strip if used == width else strip.crop_extend(0, width, base)

    def span_style(self, role: str, on: str) -> Style:
        """Returns the style of a role before a background, by the theme."""
        style = self._palette.get((role, on))
        if style is None:
            look = span_style(self.app.current_theme, role, on, is_colored=not self.app.no_color)
            style = self.rich_style + look
            self._palette[(role, on)] = style
        return style

    def notify_style_update(self) -> None:
        """Forgets what was painted in another theme or state."""
        super().notify_style_update()
        self._palette.clear()
        self._strips.clear()
        self._border = None

    def target_at(self, row: int, column: int) -> Target | None:
        """Returns what stands at a cell, None where nothing with an identity does."""
        used = 0
        for span in _row(self.lines, row):
            used += cell_width(span.text)
            if column < used:
                return span.target
        return None

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        target = self.target_at(offset.y, offset.x)
        if target is not None:
            self.post_message(self.Followed(target, event.chain))
        else:
            self.post_message(self.Clicked(self, offset.y, offset.x, event.chain))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._turned(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._turned(event, -1)

    def _turned(self, event: events.MouseEvent, num_notches: int) -> None:
        event.stop()
        self.post_message(self.Turned(self, num_notches, is_with_ctrl=event.ctrl))


def _row(lines: Sequence[Line], row: int) -> Line:
    return lines[row] if 0 <= row < len(lines) else EMPTY
