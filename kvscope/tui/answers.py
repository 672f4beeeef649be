"""What is shown, to take along: as Markdown for a report, as the command that prints it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvscope.analysis.engine_report import engine_report
from kvscope.analysis.request_report import request_report
from kvscope.analysis.step_report import step_report
from kvscope.analysis.text import visible
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.place import Place
from kvscope.tui.screens.request import RequestScreen
from kvscope.tui.screens.why import WhyScreen

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class Answers:
    """Puts onto the clipboard what is shown: a request or an answer in its place, else the step."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app

    @property
    def _model(self) -> ScreenModel:
        return self._app.model

    @property
    def _request_id(self) -> str | None:
        """The request in whose place one is."""
        return self._model.selected_id if isinstance(self._app.screen, RequestScreen | WhyScreen) else None

    @property
    def _place(self) -> Place | None:
        """The place where one is, where it is about something else than the step."""
        screen = self._app.screen
        return screen if isinstance(screen, Place) and not screen.IS_OF_STEP else None

    def copy_step(self) -> None:
        """Copies the step, or the request or the answer in whose place one is, as Markdown for a bug report."""
        model, place = self._model, self._place
        if model.timeline is None or model.moment is None:
            return
        if place is not None:
            command, lines = shlex.join(place.command()), place.report()
            self._app.copy_to_clipboard(markdown(visible(command), (), lines))
            self._app.say(f"copied this place: {len(lines)} lines")
            return
        name, request_id = visible(model.timeline.path.name), self._request_id
        lines = [] if model.config is None else [*engine_report(model.config), ""]
        if request_id is None:
            what = f"step {model.step}"
            lines += step_report(model.timeline, model.step)
            if model.selected_id is not None:
                lines += ["", *request_report(model.timeline, model.step, model.selected_id)]
        else:
            what = f"{visible(request_id)} after step {model.step}"
            lines += request_report(model.timeline, model.step, request_id)
        note = self._app.notes.report_lines(model.step)
        title = f"{what[0].upper() + what[1:] if request_id is None else what} of {name}"
        self._app.copy_to_clipboard(markdown(title, note, lines))
        self._app.say(f"copied {what}: {len(lines)} lines")

    def copy_command(self) -> None:
        """Copies the command that prints it."""
        model = self._model
        if model.timeline is None or model.moment is None:
            return
        path, step, request_id = str(model.timeline.path), str(model.step), self._request_id
        words = ["kvscope", "show", path, "--step", step]
        if self._place is not None:
            words = self._place.command()
        elif request_id is not None and isinstance(self._app.screen, WhyScreen):
            words = ["kvscope", "why", path, request_id, "--step", step]
        elif request_id is not None:
            words += ["--request", request_id]
        command = shlex.join(words)
        self._app.copy_to_clipboard(command)
        self._app.say(f"copied: {command}")


def markdown(title: str, note: Sequence[str], lines: Sequence[str]) -> str:
    """Returns a title, a note, and the lines as they are: no line of theirs can end the fence around them."""
    longest = max((len(run) for line in lines for run in re.findall("`{3,}", line)), default=2)
    fence = "`" * (longest + 1)
    return "\n".join([f"## {title}", "", *note, fence, *lines, fence, ""])
