"""Answers that are more than a look at a step: why a request fared as it did, and the step as text to take along."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope.analysis.step_report import step_report
from kvscope.analysis.text import visible
from kvscope.analysis.why.layout import Section
from kvscope.replay.timeline import Timeline
from kvscope.tui.model import ScreenModel
from kvscope.tui.screens.modals import TextModal
from kvscope.tui.view.lines import Line, Span
from kvscope.tui.view.why import why_lines, why_sections

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

OpenTimeline = Callable[[Path], Timeline]


class Answers:
    """Reads lives in a thread and through a connection of its own, so that keys go on being heard."""

    def __init__(self, app: KvscopeApp, open_timeline: OpenTimeline | None) -> None:
        self._app = app
        self._open_timeline = open_timeline

    @property
    def _model(self) -> ScreenModel:
        return self._app.model

    def open_why(self) -> None:
        """Opens the whole answer on the selected request: why it waited, was preempted, missed, was slow."""
        model = self._model
        request_id, timeline = model.selected_id, model.timeline
        if request_id is None or timeline is None:
            return
        reading: Line = (Span("reading the life of ", "dim"), Span(visible(request_id), "bold"), Span(" …", "dim"))
        modal = TextModal(lambda width: [reading], is_ascii=self._app.is_ascii)
        self._app.push_screen(modal)
        lives = model.moment is not None and request_id in model.moment.state.requests
        answer = self._answer(modal, timeline, request_id, model.step if lives else None)
        self._app.run_worker(answer, group="why", exclusive=True)

    async def _answer(self, modal: TextModal, timeline: Timeline, request_id: str, step: int | None) -> None:
        if self._open_timeline is None:  # a timeline in memory: read in place, and put back where it stood
            await asyncio.sleep(0)
            sections = why_sections(timeline, request_id, step)
            timeline.at(self._model.step)
        else:
            opening = self._open_timeline, timeline.path
            sections = await asyncio.to_thread(_sections_apart, *opening, request_id, step)
        modal.fill(lambda width: why_lines(sections, width))

    def copy_step(self) -> None:
        """Copies the step as Markdown, for a bug report."""
        model = self._model
        if model.timeline is None or model.moment is None:
            return
        lines = step_report(model.timeline, model.step)
        name = visible(model.timeline.path.name)
        self._app.copy_to_clipboard("\n".join([f"Step {model.step} of {name}", "", "```", *lines, "```", ""]))
        self._app.say(f"copied step {model.step}: {len(lines)} lines")

    def copy_command(self) -> None:
        """Copies the command that prints the step."""
        model = self._model
        if model.timeline is None or model.moment is None:
            return
        command = f"kvscope show {shlex.quote(str(model.timeline.path))} --step {model.step}"
        self._app.copy_to_clipboard(command)
        self._app.say(f"copied: {command}")


def _sections_apart(open_timeline: OpenTimeline, path: Path, request_id: str, step: int | None) -> list[Section]:
    timeline = open_timeline(path)
    try:
        return why_sections(timeline, request_id, step)
    finally:
        timeline.close()
