"""The step as text to take along: as Markdown for a report, as the command that prints it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from kvscope.analysis.step_report import step_report
from kvscope.analysis.text import visible
from kvscope.tui.model import ScreenModel

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class Answers:
    """Puts what is shown onto the clipboard."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app

    @property
    def _model(self) -> ScreenModel:
        return self._app.model

    def copy_step(self) -> None:
        """Copies the step as Markdown, for a bug report."""
        model = self._model
        if model.timeline is None or model.moment is None:
            return
        lines = step_report(model.timeline, model.step)
        name = visible(model.timeline.path.name)
        note = self._app.notes.report_lines(model.step)
        self._app.copy_to_clipboard("\n".join([f"Step {model.step} of {name}", "", *note, "```", *lines, "```", ""]))
        self._app.say(f"copied step {model.step}: {len(lines)} lines")

    def copy_command(self) -> None:
        """Copies the command that prints the step."""
        model = self._model
        if model.timeline is None or model.moment is None:
            return
        command = f"kvscope show {shlex.quote(str(model.timeline.path))} --step {model.step}"
        self._app.copy_to_clipboard(command)
        self._app.say(f"copied: {command}")
