"""What the place "why" knows of the selected request at the step: at once what it can, the rest from the desk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kvscope.analysis.why import WhyAnswer, explain
from kvscope.analysis.why.here import Outlook, Refusals, WaitingHere, outlook, waiting_here
from kvscope.analysis.why.layout import Section
from kvscope.analysis.why.report import report
from kvscope.tui.desk import Asker, WatchedTimeline
from kvscope.tui.model import ScreenModel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class WhyReading:
    """What the place knows of the selected request at the step."""

    def __init__(self, model: ScreenModel) -> None:
        self.model = model
        self.refusals = Refusals()
        self.shows_life = False
        """The whole life, also where the request waits."""
        self._outlook: Asker[Outlook | None] | None = None
        self._life: Asker[list[Section]] | None = None
        self._asked_id: str | None = None
        """Whose life was asked for last."""
        self._here: tuple[int, WaitingHere | None] = (-1, None)

    def attach(self, app: KvscopeApp, changed: Callable[[], None]) -> None:
        """Makes it able to ask; `changed` is called when there is more to show."""
        self._outlook = Asker(app, changed)
        self._life = Asker(app, changed)

    @property
    def here(self) -> WaitingHere | None:
        """What can be said at once of a request that waits; None for any other."""
        model = self.model
        if self._here[0] != model.version:
            found = None
            if model.timeline is not None and model.moment is not None and model.selected_id is not None:
                found = waiting_here(model.timeline, model.moment, model.selected_id)
            self._here = (model.version, found)
        return self._here[1]

    @property
    def is_step_shown(self) -> bool:
        """The answer is that of the step: the request waits, and not its whole life was asked for."""
        return self.here is not None and not self.shows_life

    def ask(self) -> None:
        """Asks for what takes longer."""
        model = self.model
        if self._outlook is None or self._life is None or model.selected_id is None or model.step < 0:
            return
        if self.is_step_shown:
            self._outlook.ask(self._outlook_key, partial(_outlook, step=model.step, request_id=model.selected_id))
        elif not (self._life.is_waiting and self._asked_id == model.selected_id):  # a longer life can wait
            self._asked_id = model.selected_id
            self._life.ask(self._life_key, partial(_life, request_id=model.selected_id))

    @property
    def _outlook_key(self) -> tuple[str | None, int]:
        return self.model.selected_id, self.model.step

    @property
    def _life_key(self) -> tuple[str | None, int]:
        """While the recording grows the life is read anew at each step that is looked at."""
        return self.model.selected_id, self.model.step if self.model.is_growing else -1

    @property
    def outlook(self) -> Outlook | None:
        """What would have helped; None while it is being worked out."""
        asker = self._outlook
        return asker.value if asker is not None and asker.value_key == self._outlook_key else None

    @property
    def life(self) -> list[Section] | None:
        """The whole answer, or all but the prefix cache while that is read; None while nothing is worked out yet."""
        asker = self._life
        if asker is None:
            return None
        early = asker.early(_EarlyLife)
        if early is not None:
            return early.of(self.model.selected_id)
        if asker.value_key is None or asker.value_key[0] != self.model.selected_id:  # type: ignore[index]
            return None
        return asker.value

    @property
    def is_partial(self) -> bool:
        """What is shown of its life lacks what is still being read."""
        return self._life is not None and self._life.watch is not None and self.life is not None

    @property
    def waiting_words(self) -> str:
        """How far the question under way is, or what is wrong with it."""
        asker = self._life
        if asker is None:
            return ""
        if asker.error:
            return asker.error
        watch = asker.watch
        if watch is None:
            return "…"
        return f"reading {watch.doing or 'its life'}: step {watch.step:,} of {watch.last_step:,} …"

    def leave(self) -> None:
        """Leaves the questions under way."""
        for asker in (self._outlook, self._life):
            if asker is not None:
                asker.leave()


def _outlook(timeline: WatchedTimeline, step: int, request_id: str) -> Outlook | None:
    return outlook(timeline, step, request_id)


@dataclass(frozen=True, slots=True)
class _EarlyLife:
    """What can be said of a request before all is read."""

    request_id: str
    sections: list[Section]

    def of(self, request_id: str | None) -> list[Section] | None:
        """Returns it where it is of this request."""
        return self.sections if request_id == self.request_id else None


def _life(timeline: WatchedTimeline, request_id: str) -> list[Section]:
    def tell_early(answer: WhyAnswer) -> None:
        timeline.early = _EarlyLife(request_id, report(answer))
        timeline.doing = "prefix cache"

    return report(explain(timeline, request_id, early=tell_early))
