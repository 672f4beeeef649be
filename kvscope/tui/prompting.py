"""Prompts to the engine: one or several at once, the settings that go with them, and the file they may come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand

from kvscope.analysis.text import visible
from kvscope.control import Accepted, Reply, Submit, SubmitTogether
from kvscope.errors import UsageError
from kvscope.paths import expanded
from kvscope.tui.prompt_settings import MAX_PROMPTS, PromptSettings
from kvscope.tui.screens.form import FormModal
from kvscope.tui.screens.modals import GotoModal

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp

MAX_FILE_BYTES = 1 << 20
"""Of a file of prompts: what one would still look at in an editor of a few lines."""


class Prompting:
    """What is typed, how it is sampled, and what becomes of it. A prompt that is refused is not lost."""

    def __init__(self, app: KvscopeApp, *, is_chat: bool) -> None:
        self._app = app
        self.settings = PromptSettings(is_chat=is_chat)

    # Sending

    async def submit(self, text: str) -> bool:
        """Sends the prompts that a text stands for, all in one step; False where they were not taken.

        The first one becomes the selected request, and the screen follows the end again.
        """
        submissions = self.settings.submissions(text)
        if len(submissions) > MAX_PROMPTS:
            self._app.say(f"{len(submissions)} prompts at once: at most {MAX_PROMPTS}, send fewer", is_error=True)
            return False
        return self.show_sent(await self._app.engine.send(self._command(submissions)))

    @staticmethod
    def _command(submissions: tuple[Submit, ...]) -> Submit | SubmitTogether:
        return submissions[0] if len(submissions) == 1 else SubmitTogether(submissions=submissions)

    def show_sent(self, reply: Reply | None) -> bool:
        """Looks at what was sent: the first request is selected, the end is followed. False where it was refused."""
        if not isinstance(reply, Accepted):
            return False
        self._app.recordings.show_engine()
        if reply.request_id is not None:
            model = self._app.model
            model.select(reply.request_id)
            model.move_to(model.last_step)
            self._app.show_soon()
        if len(reply.request_ids) > 1:
            self._app.say(f"{len(reply.request_ids)} prompts: {reply.request_ids[0]} to {reply.request_ids[-1]}")
        return True

    def commands(self) -> Iterator[SystemCommand]:
        """Yields what only the prompt line has a key for, for the palette."""
        if self._app.model.control is not None:
            mode, file = self._app.keys.shown("ctrl+t"), self._app.keys.shown("ctrl+f")
            yield SystemCommand("Prompts as chat, or raw", f"key {mode} in the prompt", self.toggle_chat)
            yield SystemCommand("A file into the prompt", f"key {file} in the prompt", self.ask_file)

    # Settings

    def toggle_chat(self) -> None:
        """Chat or raw."""
        self.settings.is_chat = not self.settings.is_chat
        self._changed()

    def ask_settings(self) -> None:
        """Opens the settings that go with every prompt."""
        status = self._app.model.engine_status
        if status is None:
            self._app.say("This is a recording: there is no engine to send a prompt to")
            return
        fields = self.settings.fields(status.sampling, status.recommended_sampling)
        self._app.push_screen(FormModal("WITH EVERY PROMPT", fields, self._take_settings, is_ascii=self._app.is_ascii))

    async def _take_settings(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        errors = self.settings.take(texts, self._defaults())
        if not errors:
            self._changed()
        return errors

    def _defaults(self) -> Mapping[str, Any]:
        status = self._app.model.engine_status
        return {} if status is None else status.sampling

    def _changed(self) -> None:
        self._app.model.version += 1
        self._app.show_soon()

    # Files

    def ask_file(self) -> None:
        """Asks for a file whose text goes into the prompt line, where it can still be looked at."""
        settings = self._app.keys.shown("ctrl+o")
        modal = GotoModal(
            f"its text goes into the prompt line; split ({settings}) makes a prompt of each line or paragraph",
            self._take_file,
            is_ascii=self._app.is_ascii,
            placeholder="a text file, such as prompts.txt",
        )
        self._app.push_screen(modal)

    def _take_file(self, name: str) -> str | None:
        try:
            path = expanded(name.strip())
            num_bytes = path.stat().st_size
            if num_bytes > MAX_FILE_BYTES:
                return f"{visible(str(path))} has {num_bytes:,} bytes, at most {MAX_FILE_BYTES:,} are taken: split it"
            text = path.read_text()
        except UsageError as error:
            return visible(error.message)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            return f"cannot read {visible(str(path))}: {reason}"
        self._app.call_later(self._fill, text.rstrip("\n"))
        return None

    def _fill(self, text: str) -> None:
        self._app.open_prompt()
        self._app.main_screen.prompt.insert(text)
