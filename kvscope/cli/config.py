"""`kvscope config`: the settings of the screen that are in force, where their file is, and a file to begin with."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.errors import UsageError

if TYPE_CHECKING:
    from kvscope.tui.config import Config

ASCII_HELP = "Draw with ASCII characters only."
THEME_HELP = "dark or light; by default what the config file says, else dark."


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(config)


def config(
    wants_path: Annotated[
        bool, typer.Option("--path", help="Print only where the file is, or would be; makes its folder.")
    ] = False,
    wants_default: Annotated[
        bool, typer.Option("--default", help="Print a file with every setting and key, all commented out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the screen's settings and keys as they are in force. KVSCOPE_CONFIG names another file.

    To begin with: kvscope config --default > "$(kvscope config --path)"
    """
    from kvscope.tui.config import DEFAULT, config_path, read_config
    from kvscope.tui.config_text import config_text

    if wants_path + wants_default + as_json > 1:
        raise UsageError("--path, --default and --json print different things: choose one")
    path = config_path()
    if wants_path:
        with contextlib.suppress(OSError):  # whoever writes the file hears what is wrong
            path.parent.mkdir(parents=True, exist_ok=True)
        print(path)
    elif wants_default:
        print(config_text(DEFAULT, is_commented_out=True), end="")
    else:
        found = read_config()
        if as_json:
            print(json.dumps({"path": str(path), "exists": path.exists(), **as_record(found)}, ensure_ascii=False))
            return
        print(f"the config file {'is' if path.exists() else 'would be'} {path}", file=sys.stderr)
        print(config_text(found), end="")


def as_record(found: Config) -> dict[str, object]:
    """Returns the settings by their names in the file, with the keys of every action."""
    from kvscope.tui.config import default_screenshots_folder
    from kvscope.tui.config_text import key_rows

    return {
        "theme": found.theme,
        "ascii": found.is_ascii,
        "zoom": found.steps_per_column,
        "speed": found.steps_per_second,
        "screenshots": str(found.screenshots_folder or default_screenshots_folder()),
        "keys": {action.name: list(keys) for action, keys in key_rows(found)},
    }


def screen_config(theme: str | None, is_ascii: bool | None) -> Config:
    """Returns the config file's settings, with the options of a command before them. Raises `UsageError`."""
    from kvscope.tui.config import read_config
    from kvscope.tui.themes import THEMES

    if theme is not None and theme not in THEMES:
        raise UsageError(f"there is no theme {theme!r}: {' or '.join(THEMES)}")
    found = read_config()
    return dataclasses.replace(
        found,
        theme=found.theme if theme is None else theme,
        is_ascii=found.is_ascii if is_ascii is None else is_ascii,
    )
