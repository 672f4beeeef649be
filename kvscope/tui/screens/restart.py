"""The form of a restart: every setting of the engine, and how far the new one is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvscope.analysis.text import visible
from kvscope.control import EngineStarter
from kvscope.tui.screens.form import FormModal, Texts
from kvscope.tui.screens.modals import keys_of
from kvscope.tui.view.form import FormField
from kvscope.tui.view.lines import Line, Span

if TYPE_CHECKING:
    from kvscope.tui.restart import Restart


class RestartForm(FormModal):
    """Enter starts an engine with these settings beside the one that runs; esc leaves it, also while it loads."""

    KEYS = "⏎ starts it · ↑ ↓ field · esc leaves"

    def __init__(
        self,
        restart: Restart,
        starter: EngineStarter,
        fields: Sequence[FormField],
        changes: Mapping[str, Any],
        then: Callable[[], None],
        *,
        is_ascii: bool,
    ) -> None:
        super().__init__("RESTART THE ENGINE WITH", fields, self._start, is_ascii=is_ascii)
        self._restart = restart
        self._starter = starter
        self._changes = changes
        self._then = then
        self._doing = ""

    def first_field(self) -> int:
        """The first one that was changed for the user."""
        return next((index for index, field in enumerate(self.fields) if field.name in self._changes), 0)

    def notes(self) -> Sequence[Line]:
        path = self._restart.recording_path()
        if self._doing:
            return [
                (Span(f"… {visible(self._doing)}", "bold"), Span(" · the engine before runs on; esc leaves", "dim"))
            ]
        if path is None:
            return [(Span("The engine before has no recording yet.", "dim"),)]
        return [
            (
                Span("The recording so far stays open ("),
                Span(keys_of(self).shown("a"), "bold"),
                Span(" goes back to it) and lies in"),
            ),
            (Span(visible(str(path)), "dim"),),
        ]

    async def _start(self, texts: Texts) -> Mapping[str, str]:
        try:
            errors = await self._restart.begin(self._starter, texts, self._tell)
        finally:
            self._tell("", None)
        if not errors:
            self.call_after_refresh(self._then)
        return errors

    def _tell(self, what: str, progress: float | None) -> None:
        self._doing = what if progress is None else f"{what} {progress:.0%}"
        self.show()
