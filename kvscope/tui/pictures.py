"""Pictures of the screen as SVG, for a report: each a file of its own, never over another one."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope.analysis.text import visible

if TYPE_CHECKING:
    from kvscope.tui.app import KvscopeApp


class Pictures:
    """Keeps what is shown, whatever is on top."""

    def __init__(self, app: KvscopeApp, folder: Path) -> None:
        self._app = app
        self._folder = folder

    def keep(self) -> None:
        """Writes the screen into a new file of the folder, and says which."""
        model = self._app.model
        name, at = "kvscope", ""
        if model.timeline is not None and model.step >= 0:
            name, at = model.timeline.path.name, f"step {model.step}"
        picture = self._app.export_screenshot(title=visible(", ".join(filter(None, (name, at)))))
        try:
            path = write_new(self._folder, f"{name.removesuffix('.db')} {at}".strip(), picture)
        except OSError as error:
            self._app.say(f"no picture was kept: {self._folder} cannot be written to ({error.strerror})", is_error=True)
        else:
            self._app.say(f"picture kept: {path}")


def write_new(folder: Path, name: str, text: str) -> Path:
    """Writes a text into an SVG file that was not there before, numbered where the name is taken; returns its path.

    Makes the folder. Raises `OSError` where it cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^\w.]+", "-", name).strip("-.") or "kvscope"
    for number in count(1):
        path = folder / (f"{stem}.svg" if number == 1 else f"{stem}-{number}.svg")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError("there is a number that is not taken")
