"""The first and the last line of every place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from kvscope.analysis.text import visible
from kvscope.tui.model import ScreenModel
from kvscope.tui.view.header import HeaderFacts, chip, footer_line, header_line
from kvscope.tui.view.lines import Line
from kvscope.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class HeaderBar(Panel):
    """What runs, why it stopped, the chip, the step."""

    def __init__(self, model: ScreenModel, *, is_ascii: bool) -> None:
        super().__init__(model, id="header", is_ascii=is_ascii)
        self.places: Sequence[str] = ()

    def build(self, width: int, height: int) -> Sequence[Line]:
        model = self.model
        recordings = cast("KvscopeApp", self.app).recordings
        facts = HeaderFacts(
            config=model.config,
            source=source_name(model),
            reason=self._reason(),
            chip=chip(
                model.status,
                is_growing=model.is_growing,
                is_playing=model.is_playing,
                step=model.step,
                last_step=model.last_step,
                is_following=model.is_following,
            ),
            step=model.step,
            last_step=model.last_step,
            places=[visible(place) for place in self.places],
            recording=recordings.label,
            recording_name=recordings.name(recordings.current) if recordings.are_several else "",
        )
        return [header_line(facts, width)]

    def _reason(self) -> str:
        model = self.model
        if model.error:
            return visible(model.error)
        if model.note is not None and model.note[0] == model.step:
            return visible(model.note[1])
        status = model.status
        if status is None:
            return f"{model.steps_per_second} steps/s" if model.is_playing else ""
        if status.detail not in ("", status.phase):  # also of an idle engine: why nothing can go on
            return visible(status.detail)
        return f"{status.num_submitted} submitted" if status.num_submitted else ""


def source_name(model: ScreenModel) -> str:
    """Returns the name of the recording, of which the header shows something while the engine is unknown."""
    return "" if model.timeline is None else visible(model.timeline.path.name)


class FooterBar(Panel):
    """The keys that matter here."""

    IS_OF_STEP = True

    def __init__(
        self, model: ScreenModel, keys: Sequence[tuple[str, str]], *, yielding: Sequence[str] = (), is_ascii: bool
    ) -> None:
        """`yielding`: the keys that make room first where not all fit."""
        super().__init__(model, id="footer", is_ascii=is_ascii)
        self._enter = "enter" if is_ascii else "⏎"
        self._yielding = yielding
        self.tell(keys)

    def tell(self, keys: Sequence[tuple[str, str]], *, are_shown: bool = False) -> None:
        """Shows these keys from now on: by their defaults, or, `are_shown`, as they are written now."""
        self._are_shown = are_shown
        self.keys = [(self._enter if key == "⏎" else key, what) for key, what in keys]
        self.invalidate()
        self.show()

    def build(self, width: int, height: int) -> Sequence[Line]:
        app = cast("KvscopeApp", self.app)
        told = of_search(self.keys) if app.finding.is_target else self.keys
        shown = told if self._are_shown else [(app.keys.shown(key), what) for key, what in told]
        names = [key for key, _ in told]
        return [footer_line(shown, width, [names.index(key) for key in self._yielding if key in names])]


def of_search(keys: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the keys as they are while the ones of events go from hit to hit; esc ends that."""
    told: list[tuple[str, str]] = []
    for key, what in keys:
        is_of_events = (key, what) == ("n N", "event")
        told.append((key, "hit" if is_of_events else what))
        if is_of_events and not any(other == "esc" for other, _ in keys):
            told.append(("esc", "end search"))
    return told
