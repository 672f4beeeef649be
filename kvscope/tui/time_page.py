"""The page of steps that a timeline shows, and the life of the selected request on it.

Reads summaries and lives; knows neither how the cursor moves nor an engine.
"""

from __future__ import annotations

from kvscope import events as ev
from kvscope.analysis.history import request_history, turns
from kvscope.errors import KvscopeError
from kvscope.replay.timeline import Moment, StepSummary, Timeline
from kvscope.tui.view.life import Deed, ScheduledIndex, by_column, deeds_of, sampled_deeds
from kvscope.tui.view.window import Window, fitting_zoom, next_zoom, page

MAX_LIFE_STEPS = 4_000
"""A life line over more steps than this is drawn from the request's turning points alone."""

MAX_STEPS_PER_COLUMN = 1_000_000


class TimePage:
    """The part of the model that the time axis needs."""

    def __init__(self, timeline: Timeline | None) -> None:
        self.timeline = timeline
        self.moment: Moment | None = None
        """What is shown: the step, or its state behind one of its events."""
        self.error = ""
        """What went wrong with the recording, in one line."""
        self.selected_id: str | None = None
        self.steps_per_column = 1
        self.window: Window | None = None
        self.scheduled = ScheduledIndex()
        self.version = 0
        """Grows with everything that may change what is shown."""
        self.num_news = 0
        """Grows with what came behind the step that is shown: to most parts of the screen that is no change."""
        self._summaries: tuple[tuple[Window, int], list[StepSummary]] | None = None
        self._has_new_life = False

    @property
    def step(self) -> int:
        """The step that is shown, -1 where there is none."""
        return -1 if self.moment is None else self.moment.step

    @property
    def first_step(self) -> int:
        return 0 if self.timeline is None else self.timeline.first_step

    @property
    def last_step(self) -> int:
        return -1 if self.timeline is None else self.timeline.last_step

    @property
    def whole_run_zoom(self) -> int:
        """Steps a column with which the whole run is shown, on a page as wide as the last one."""
        if self.window is None or self.last_step < 0:
            return MAX_STEPS_PER_COLUMN
        return min(fitting_zoom(self.first_step, self.last_step, self.window.num_columns), MAX_STEPS_PER_COLUMN)

    def zoom(self, *, is_finer: bool) -> bool:
        """Shows more or fewer steps in a column of the timeline; False where the whole run is shown already."""
        if not is_finer and self.steps_per_column >= self.whole_run_zoom:
            return False
        self.steps_per_column = next_zoom(self.steps_per_column, is_finer=is_finer)
        self.version += 1
        return True

    def swap_whole_run(self) -> None:
        """Shows the whole run; where it is shown, single steps again."""
        is_whole = self.steps_per_column == self.whole_run_zoom
        self.steps_per_column = 1 if is_whole else self.whole_run_zoom
        self.version += 1

    def turn_page(self, num_columns: int) -> Window:
        """Returns the page of the timeline that shows the step."""
        self.window = page(
            max(self.step, 0), self.first_step, self.last_step, num_columns, self.steps_per_column, self.window
        )
        return self.window

    def summaries(self, window: Window) -> list[StepSummary]:
        """Returns the page's columns; read once until the page or the end changes."""
        if self.timeline is None or self.last_step < 0:
            return []
        key = (window, self.last_step if self.last_step < window.end_step else window.end_step)
        if self._summaries is None or self._summaries[0] != key:
            columns = self.timeline.summaries(window.first_step, window.num_columns, window.steps_per_column)
            self._summaries = (key, columns)
        return self._summaries[1]

    def life_deeds(self, first_step: int, last_step: int, steps_per_column: int) -> list[Deed]:
        """Returns a deed of the selected request for each column of the range."""
        last_step = min(last_step, self.last_step)
        if self.timeline is None or self.selected_id is None or last_step < first_step:
            return []
        found = turns(self.timeline, self.selected_id, last_step)
        if last_step - first_step >= MAX_LIFE_STEPS:
            return sampled_deeds(found, first_step, last_step, steps_per_column)
        deeds = deeds_of(found, self.scheduled, self.selected_id, first_step, last_step)
        return by_column(deeds, steps_per_column)

    def held_blocks(self, first_step: int, last_step: int, steps_per_column: int) -> list[int]:
        """Returns the most blocks that the selected request held in each column of the range."""
        if self.timeline is None or self.selected_id is None or last_step < first_step:
            return []
        history = request_history(self.timeline, self.selected_id, last_step)
        columns = [0] * ((last_step - first_step) // steps_per_column + 1)
        held, at = 0, first_step
        for step, event in [] if history is None else history.until(last_step):
            for column in range((at - first_step) // steps_per_column, (step - 1 - first_step) // steps_per_column + 1):
                columns[column] = max(columns[column], held)
            at = max(step, first_step)
            match event:
                case ev.BlockTouched() | ev.BlockAllocated():
                    held += len(event.block_ids)
                case ev.BlockReleased():
                    held = 0
                case _:
                    pass
        for column in range((at - first_step) // steps_per_column, len(columns)):
            columns[column] = max(columns[column], held)
        return columns

    def read_ahead(self, max_steps: int) -> bool:
        """Reads who was scheduled in some more steps of the page, for the life line; False where none lacks."""
        window = self.window
        if window is None or self.timeline is None or window.end_step - window.first_step > MAX_LIFE_STEPS:
            return False
        last = min(window.end_step - 1, self.last_step)
        first = self.scheduled.first_missing(window.first_step, last)
        if first is None:
            return False
        try:
            end = min(first + max_steps - 1, last)
            for step, events in self.timeline.select_events((ev.TokensScheduled,), first, end):
                self.scheduled.add(step, events)
                if self.selected_id is not None and self.scheduled.is_known_idle(step, self.selected_id):
                    self._has_new_life = True
        except KvscopeError as error:
            self.error = error.message
            return False
        return True

    def take_new_life(self) -> bool:
        """True where what was read ahead since the last call may change the life line: a step without the request.

        A step that scheduled it is drawn as such before it is read.
        """
        has_new_life, self._has_new_life = self._has_new_life, False
        return has_new_life
