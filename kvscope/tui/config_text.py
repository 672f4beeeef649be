"""The settings as a config file: what is in force, or all defaults with a word on each, as comments."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kvscope.analysis.text import cell_width
from kvscope.tui.config import (
    DEFAULT,
    SPEEDS,
    ZOOMS,
    Config,
    configurable_actions,
    default_screenshots_folder,
)
from kvscope.tui.key_names import key_character, shown_key
from kvscope.tui.keymap import FIXED, RESERVED, Action
from kvscope.tui.themes import THEMES

MAX_ASSIGNMENT = 46
"""Cells before the words about a line begin."""


def config_text(config: Config, *, is_commented_out: bool = False) -> str:
    """Returns a config file that says this; commented out, it changes nothing until a line is uncommented."""
    head = "# " if is_commented_out else ""
    folder = config.screenshots_folder or default_screenshots_folder()
    settings = (
        ("theme", config.theme, DEFAULT.theme, f"colours: {', '.join(THEMES)}"),
        ("ascii", config.is_ascii, DEFAULT.is_ascii, "draw with ASCII characters only: true, false"),
        ("zoom", config.steps_per_column, DEFAULT.steps_per_column, f"steps a column of the timeline: {_some(ZOOMS)}"),
        ("speed", config.steps_per_second, DEFAULT.steps_per_second, f"steps a second when playing: {_some(SPEEDS)}"),
        ("screenshots", str(folder), str(default_screenshots_folder()), "folder of the pictures (SVG)"),
    )
    lines = [
        _line(f"{head}{name} = {json.dumps(value, ensure_ascii=False)}", what, is_other=value != default)
        for name, value, default, what in settings
    ]
    lines += [
        "",
        "# A key is a character or a name: left, home, pagedown, space, f5, ctrl+e. One, or several in brackets;",
        "# [] is none. " + _fixed_words(),
        "[keys]",
    ]
    group = ""
    for action in configurable_actions():
        if action.name.partition(".")[0] != group:
            group = action.name.partition(".")[0]
            lines.append("")
        keys = config.keys.get(action.name, action.keys)
        lines.append(_line(f"{head}{action.name} = {_keys(keys)}", action.what, is_other=keys != action.keys))
    return "\n".join(lines) + "\n"


def key_rows(config: Config) -> Iterator[tuple[Action, tuple[str, ...]]]:
    """Yields the actions with their keys as they are in force."""
    for action in configurable_actions():
        yield action, config.keys.get(action.name, action.keys)


def _line(assignment: str, what: str, *, is_other: bool) -> str:
    blanks = " " * max(MAX_ASSIGNMENT - cell_width(assignment), 1)
    return f"{assignment}{blanks}# {what}{' (not the default)' if is_other else ''}"


def _keys(keys: tuple[str, ...]) -> str:
    told = [json.dumps(key_character(key) or key, ensure_ascii=False) for key in keys]
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]"


def _some(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values)) if len(values) < 9 else f"{', '.join(map(str, values[:6]))} … {values[-1]}"


def _fixed_words() -> str:
    fixed = ", ".join(f"{shown_key(key)} ({action})" for action, key in FIXED.items())
    return f"Fixed: {fixed}, {', '.join(f'{key} ({what})' for key, what in RESERVED.items())}."
