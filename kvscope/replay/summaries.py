"""Timeline columns at any zoom, from the summaries that were kept while writing.

A column of 1, 2 or 5 times a power of ten steps is made of at most five rows of that power's level; only the last,
incomplete one needs the levels below.
"""

from __future__ import annotations

from kvscope.errors import RecordingError
from kvscope.recording.schema import SUMMARY_LEVELS
from kvscope.recording.summary_levels import SUMMARY_FIGURES, Figures, combine
from kvscope.replay.recording_file import RecordingFile
from kvscope.replay.timeline import StepSummary

_STEP_NS = "coalesce(schedule_ns, 0) + coalesce(forward_ns, 0) + coalesce(sample_ns, 0) + coalesce(update_ns, 0)"
_IS_STALLED = "coalesce(num_scheduled_tokens, 0) = 0 AND coalesce(num_waiting, 0) > 0"
_OF_STEP = {"step_ns": _STEP_NS, "num_stalled": _IS_STALLED}
_STEP_SQL = ", ".join(_OF_STEP.get(name, f"coalesce({name}, 0)") for name in SUMMARY_FIGURES)
_LEVEL_SQL = ", ".join(SUMMARY_FIGURES)
_FIELDS = tuple("num_live_blocks" if name == "num_used_blocks" else name for name in SUMMARY_FIGURES)


def read_summaries(
    file: RecordingFile, first_step: int, num_columns: int, steps_per_column: int, last_step: int
) -> list[StepSummary]:
    """Returns the columns from the one that holds `first_step` on; columns begin at multiples of their width."""
    width = steps_per_column
    begin = max(first_step, 0) // width * width
    end = min(begin + num_columns * width, last_step + 1)
    if end <= begin:
        return []
    columns: dict[int, list[Figures]] = {}
    for step, figures in _rows(file, begin, end, width):
        columns.setdefault(step // width, []).append(figures)
    try:
        combined = {column: combine(rows) for column, rows in columns.items()}
    except TypeError as error:
        raise RecordingError(f"{file.path}: a figure of steps {begin} to {end - 1} is damaged ({error})") from error
    return [
        StepSummary(
            first_step=column * width,
            num_steps=min(width, end - column * width),
            **dict(zip(_FIELDS, figures, strict=True)),
        )
        for column, figures in combined.items()
    ]


def _rows(file: RecordingFile, begin: int, end: int, width: int) -> list[tuple[int, Figures]]:
    """Returns rows that cover the steps from `begin` up to `end`, as wide as they can be, with their first steps."""
    level = max((level for level in SUMMARY_LEVELS if width % level == 0), default=1)
    covered: list[tuple[int, Figures]] = []
    while begin < end:
        if level == 1:
            rows = file.rows(f"SELECT step, {_STEP_SQL} FROM steps WHERE step >= ? AND step < ?", (begin, end))
        else:
            rows = file.rows(
                f"SELECT first_step, {_LEVEL_SQL} FROM summaries WHERE num_steps = ? AND first_step >= ? "
                "AND first_step + num_steps <= ? ORDER BY first_step",
                (level, begin, end),
            )
        covered += [(row[0], row[1:]) for row in rows]
        if level == 1:
            break
        if rows:
            begin = rows[-1][0] + level
        level //= 10
    return covered
