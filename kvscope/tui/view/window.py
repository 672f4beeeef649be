"""The page of steps that a timeline shows: which it is, and how many steps stand in a column. Knows no drawing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """The page of steps that the timeline shows."""

    first_step: int
    num_columns: int
    steps_per_column: int

    @property
    def end_step(self) -> int:
        """The first step behind the page."""
        return self.first_step + self.num_columns * self.steps_per_column

    def column(self, step: int) -> int:
        return (step - self.first_step) // self.steps_per_column

    def __contains__(self, step: int) -> bool:
        return self.first_step <= step < self.end_step


def next_zoom(steps_per_column: int, *, is_finer: bool) -> int:
    """Returns the next of 1, 2, 5, 10, 20, 50… steps a column."""
    digits = len(str(steps_per_column)) - 1
    leading = steps_per_column // 10**digits
    power = int("1" + "0" * digits)
    if not is_finer:
        return {1: 2, 2: 5, 5: 10}[leading] * power
    if steps_per_column == 1:
        return 1
    return {1: power // 2, 2: power, 5: 2 * power}[leading]


def fitting_zoom(first_step: int, last_step: int, num_columns: int) -> int:
    """Returns the fewest steps a column with which the whole run stands on one page."""
    steps_per_column = 1
    while last_step // steps_per_column - first_step // steps_per_column >= num_columns > 1:
        steps_per_column = next_zoom(steps_per_column, is_finer=False)
    return steps_per_column


def page(
    step: int,
    first_step: int,
    last_step: int,
    num_columns: int,
    steps_per_column: int,
    previous: Window | None = None,
) -> Window:
    """Returns the page that shows `step`: the previous one while it still does.

    A page that the cursor left to the right begins so that it has a quarter of the new page behind it, one that it left
    to the left three quarters; the first page ends at the last step where the recording is longer than it. A recording
    that fits stands there whole.
    """
    span = num_columns * steps_per_column
    if (
        previous is not None
        and previous.num_columns == num_columns
        and previous.steps_per_column == steps_per_column
        and step in previous
    ):
        return previous
    if previous is None or previous.steps_per_column != steps_per_column:
        wanted = last_step + 1 - span if step > last_step - span else step - span // 2
        if last_step - first_step < span:
            wanted = first_step
        elif previous is not None and step in previous:  # zoomed: the cursor's column stays
            wanted = step - previous.column(step) * num_columns // previous.num_columns * steps_per_column
    elif step >= previous.end_step:
        wanted = step - span // 4
    else:
        wanted = step - span * 3 // 4
    wanted = max(wanted, first_step)
    aligned = -(-wanted // steps_per_column) * steps_per_column if wanted > first_step else first_step
    if aligned > step:
        aligned -= steps_per_column
    aligned = max(aligned - aligned % steps_per_column, 0)
    return Window(aligned, num_columns, steps_per_column)
