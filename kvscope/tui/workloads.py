"""Workloads to the engine: chosen from a menu, their figures fitted to its settings, rehearsed, sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvscope.analysis.workload_menu import FittedWorkload, Workload
from kvscope.control import Refused, SubmitPlan
from kvscope.tui.screens.workloads import WorkloadForm, WorkloadMenu
from kvscope.tui.view.form import FormField

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class Workloads:
    """The menu, and the figures as they were sent last."""

    def __init__(self, app: KvscopeApp) -> None:
        self._app = app
        self._texts: dict[tuple[str, str], Mapping[str, str]] = {}
        """By workload and settings."""
        self._num_sent = 0

    def open(self) -> None:
        """Opens the menu."""
        self._app.recordings.show_engine()
        if self._app.model.status is None:
            self._app.say("This is a recording: there is no engine to send a workload to")
        else:
            self._app.push_screen(WorkloadMenu(self.open_one, is_ascii=self._app.is_ascii))

    def open_one(self, workload: Workload) -> None:
        """Opens the form of one, when the engine has said how it is set up."""
        self._app.run_worker(self._open_one(workload), group="workload", exclusive=True)

    async def _open_one(self, workload: Workload) -> None:
        config = await self._app.engine.config()
        if config is not None:
            form = WorkloadForm(self, FittedWorkload(workload, config), is_ascii=self._app.is_ascii)
            self._app.push_screen(form)

    @property
    def is_idle(self) -> bool:
        status = self._app.model.status
        return status is not None and not (status.num_running or status.num_waiting or status.num_submitted)

    def fields(self, fitted: FittedWorkload) -> list[FormField]:
        """Returns a field for each figure, as it was fitted or as it was sent before; each time another seed."""
        values = {name: str(value) for name, value in fitted.fitted.items()} | {"seed": str(self._num_sent)}
        texts = self._texts.get(_key(fitted), {})
        return [
            FormField(
                name=figure.name,
                text=texts.get(figure.name, values[figure.name]),
                default=values[figure.name],
                meaning=figure.meaning,
            )
            for figure in fitted.workload.figures
        ]

    async def send(self, fitted: FittedWorkload, texts: Mapping[str, str]) -> Mapping[str, str]:
        """Sends it with the figures of a form; returns what is wrong, by figure."""
        figures, errors = fitted.read(texts)
        if errors:
            return errors
        plan = SubmitPlan(requests=fitted.plan(figures), seed=figures["seed"] + 1)
        reply = await self._app.engine.send(plan, says_refusal=False)
        if isinstance(reply, Refused):
            return {"": reply.message}
        self._texts[_key(fitted)] = {name: text for name, text in texts.items() if name != "seed"}
        self._num_sent += 1
        if self._app.prompting.show_sent(reply):
            self._app.say(f"Look at {self._app.keys.filled(fitted.workload.look_at)}")
        return {}

    def restart_with(self, fitted: FittedWorkload, settings: Mapping[str, Any]) -> None:
        """Asks for a restart with these settings, and comes back to the form."""
        self._app.restart.ask(settings, then=lambda: self.open_one(fitted.workload))


def _key(fitted: FittedWorkload) -> tuple[str, str]:
    return fitted.workload.name, fitted.settings_text
