"""How the main screen divides a terminal: every height and width, by size alone, so that nothing jumps."""

from __future__ import annotations

from dataclasses import dataclass

NARROW_COLUMNS = 100
WIDE_COLUMNS = 160
SHORT_ROWS = 32
TALL_ROWS = 48
MIN_COLUMNS = 60
MIN_ROWS = 16

HEADER_ROWS = 1
FOOTER_ROWS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLayout:
    """Rows of the timeline's parts, and the width of its gutter."""

    token_rows: int
    block_rows: int
    mark_rows: int
    life_rows: int
    gutter: int

    @property
    def rows(self) -> int:
        """All of them, with the axis."""
        return self.token_rows + self.block_rows + self.mark_rows + self.life_rows + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The main screen at one size. A column of 0 is not shown."""

    columns: int
    rows: int
    timeline: TimelineLayout | None
    """None on a screen that is too small for it."""
    step_rows: int
    """The title and the sentences."""
    queues_columns: int
    pool_columns: int
    request_columns: int
    """With the divider at its left, like `pool_columns`."""
    has_prompt: bool
    """A live prompt line stands there all the time."""
    shows_zero_counts: bool

    @property
    def body_rows(self) -> int:
        """Rows of queues, pool and request, titles included; one less while a prompt opens that has no row."""
        timeline = self.timeline.rows if self.timeline else 0
        return self.rows - HEADER_ROWS - FOOTER_ROWS - timeline - self.step_rows - int(self.has_prompt)


def main_layout(columns: int, rows: int, *, is_live: bool) -> Layout:
    """Divides a terminal. Widths and heights have breakpoints of their own, so that a wide low window works too."""
    if columns < MIN_COLUMNS or rows < MIN_ROWS:
        return Layout(
            columns=columns,
            rows=rows,
            timeline=None,
            step_rows=max(min(6, rows // 3), 2),
            queues_columns=columns,
            pool_columns=0,
            request_columns=0,
            has_prompt=False,
            shows_zero_counts=False,
        )
    is_narrow, is_wide = columns < NARROW_COLUMNS, columns >= WIDE_COLUMNS
    is_short, is_tall = rows < SHORT_ROWS, rows >= TALL_ROWS
    bars = 1 if is_short else 4 if is_tall else 3
    timeline = TimelineLayout(
        token_rows=bars,
        block_rows=bars,
        mark_rows=1 if is_short else 2,
        life_rows=0 if is_short else 1,
        gutter=13 if is_short or is_narrow else 19,
    )
    queues = 41 if is_narrow else 52 if is_wide else 37
    request = 0 if is_narrow else 57 if is_wide else 38
    return Layout(
        columns=columns,
        rows=rows,
        timeline=timeline,
        step_rows=9 if is_tall else 6,
        queues_columns=queues,
        pool_columns=columns - queues - request,
        request_columns=request,
        has_prompt=is_live and not is_short,
        shows_zero_counts=not is_narrow,
    )
