"""The config file: keys, colours and a few settings of the screen, in TOML, checked before the screen opens.

What is wrong in it is said in one line with the file, the line and what is allowed. Nothing else is read from it, and
nothing is written to it.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from kvscope.errors import UsageError
from kvscope.paths import expanded
from kvscope.tui.actions import MAIN, NOT_CONFIGURED, PROMPT, actions, places
from kvscope.tui.key_names import KeyNameError, is_chord, parse_key, shown_key
from kvscope.tui.keymap import FIXED, RESERVED, Action, Keys, clashes
from kvscope.tui.themes import THEMES
from kvscope.tui.view.help import GROUPS

CONFIG_VARIABLE = "KVSCOPE_CONFIG"

ZOOMS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SPEEDS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Steps a second of a replay that plays."""


class ConfigError(UsageError):
    """The config file cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of the screen."""

    theme: str = "dark"
    is_ascii: bool = False
    steps_per_column: int = 1
    """Of the timeline, when the screen opens."""
    steps_per_second: int = 8
    """Of a replay that plays."""
    screenshots_folder: Path | None = None
    """None: `default_screenshots_folder`."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Other keys of actions, by Textual's names."""


DEFAULT = Config()


def config_path() -> Path:
    """Returns where the config file is, or would be. `KVSCOPE_CONFIG` names another."""
    if chosen := os.environ.get(CONFIG_VARIABLE):
        return expanded(chosen)
    return platformdirs.user_config_path("kvscope") / "config.toml"


def default_screenshots_folder() -> Path:
    """Returns where pictures of the screen go when nobody says: beside the user's other pictures."""
    return platformdirs.user_pictures_path() / "kvscope"


def read_config() -> Config:
    """Returns what the config file says, the defaults where there is none.

    Raises `ConfigError` where it cannot be read or says something that is not so.
    """
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark of its encoding
    except FileNotFoundError:
        if os.environ.get(CONFIG_VARIABLE):
            raise ConfigError(f"there is no file {path}: {CONFIG_VARIABLE} names it as the config file") from None
        return DEFAULT
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read the config file {path}: {why}") from error
    return parse_config(text, str(path))


def parse_config(text: str, name: str) -> Config:
    """Returns what a config file says; `name` is how it is called in errors. Raises `ConfigError`."""
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{name}: this is no config file: it is nested too deep") from None
    except ValueError as error:  # TOML's own errors, and a number of more digits than Python reads
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        where = f", line {place[1]}" if place else ", at its end"
        what = re.sub(r" \(at .*\)$", "", str(error))
        raise ConfigError(f"{name}{where}: this is no TOML: {what[0].lower()}{what[1:]}") from error
    return _Reader(text, name).config(found)


class _Reader:
    """Takes a parsed file apart, and knows on which line everything stands."""

    def __init__(self, text: str, name: str) -> None:
        self._lines = _lines_of_keys(text)
        self._name = name

    def _wrong(self, key: str, message: str) -> ConfigError:
        line = self._lines.get(key)
        where = f", line {line}" if line else ""
        return ConfigError(f"{self._name}{where}: {key}: {message}")

    def config(self, found: Mapping[str, Any]) -> Config:
        names = ("theme", "ascii", "zoom", "speed", "screenshots", "keys")
        for key in found:
            if key not in names:
                raise self._wrong(key, f"there is no such setting{_meant(key, names)}: {', '.join(names)}")
        keys = found.get("keys", {})
        if not isinstance(keys, dict):
            raise self._wrong("keys", "[keys] is a table: an action and its keys on each line")
        return Config(
            theme=self._one_of(found, "theme", tuple(THEMES), DEFAULT.theme),
            is_ascii=self._one_of(found, "ascii", (True, False), DEFAULT.is_ascii),
            steps_per_column=self._one_of(found, "zoom", ZOOMS, DEFAULT.steps_per_column),
            steps_per_second=self._one_of(found, "speed", SPEEDS, DEFAULT.steps_per_second),
            screenshots_folder=self._folder(found.get("screenshots")),
            keys=self._keys(keys),
        )

    def _folder(self, value: object) -> Path | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self._wrong("screenshots", f"{_told(value)} is no folder: a path in quotes")
        try:
            return expanded(value)
        except UsageError as error:
            raise self._wrong("screenshots", error.message) from error

    def _one_of(self, found: Mapping[str, Any], key: str, allowed: tuple[Any, ...], default: Any) -> Any:
        value = found.get(key, default)
        if not any(value == choice and type(value) is type(choice) for choice in allowed):
            raise self._wrong(key, f"{_told(value)} is not allowed: {', '.join(map(_told, allowed))}")
        return value

    def _keys(self, table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        known = {name: action for name, action in actions().items() if _may_be_configured(action)}
        found: dict[str, tuple[str, ...]] = {}
        for name, value in _flat(table):
            if name not in known:
                hint = _meant(name, known) or ""
                raise self._wrong(f"keys.{name}", f"there is no such action{hint} (kvscope config --default has all)")
            found[name] = self._keys_of(name, value)
        for clash in clashes(Keys(actions(), found), places()):
            one, other = (
                clash.actions if any(name in found for name in clash.actions[0].commons) else clash.actions[::-1]
            )
            name = f" by {other.commons[0]}" if other.name else ""
            where = "" if clash.place == MAIN else f" in the place {clash.place!r}"
            raise self._wrong(
                f"keys.{next(name for name in one.commons if name in found)}",
                f"{shown_key(clash.key)} is taken{name} ({other.what}){where}: give one of the two another key",
            )
        return found

    def _keys_of(self, name: str, value: Any) -> tuple[str, ...]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self._wrong(f"keys.{name}", f'{_told(value)} is no key: a key in quotes, or several: ["left", "h"]')
        keys: list[str] = []
        for text in texts:
            try:
                key = parse_key(text)
            except KeyNameError as error:
                raise self._wrong(f"keys.{name}", str(error)) from error
            if key in RESERVED:
                raise self._wrong(f"keys.{name}", f"{key} always {RESERVED[key]}: choose another key")
            owner = next((action for action, fixed in FIXED.items() if fixed == key and action != name), None)
            if owner is not None:
                raise self._wrong(f"keys.{name}", f"{shown_key(key)} always is {owner}: choose another key")
            if name.startswith(f"{PROMPT}.") and not is_chord(key):
                raise self._wrong(
                    f"keys.{name}", f"{shown_key(key)} is typed into a prompt: a key with ctrl, or f1 to f12"
                )
            if key not in keys:
                keys.append(key)
        return tuple(keys)


def _may_be_configured(action: Action) -> bool:
    return not action.variant_of and action.name not in NOT_CONFIGURED


def configurable_actions() -> list[Action]:
    """Returns the actions whose keys a config file may set, in the order of the help."""
    found = [action for action in actions().values() if _may_be_configured(action)]
    return sorted(found, key=lambda action: GROUPS.index(action.name.partition(".")[0]))


def _flat(table: Mapping[str, Any], head: str = "") -> list[tuple[str, Any]]:
    """Returns `time.back` for a dotted key, a quoted one, and one in a table `[keys.time]` alike."""
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{head}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, dict) else [(name, value)]
    return found


_KEY_LINE = re.compile(r"""\s*((?:[\w.\s-]|"[^"]*"|'[^']*')+?)\s*=""")


def _lines_of_keys(text: str) -> dict[str, int]:
    """Returns the line of every key by its full name; of a name that stands in a text of several lines, the last."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = _plain(match[1])
            found.setdefault(table, number)
        elif match := _KEY_LINE.match(line):
            name = _plain(match[1])
            found[f"{table}.{name}" if table else name] = number
            found.setdefault((f"{table}.{name}" if table else name).partition(".")[0], number)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\s\"']", "", name)


def _meant(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]}?" if near else ""


def _told(value: object) -> str:
    """Returns a value as it stands in the file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
