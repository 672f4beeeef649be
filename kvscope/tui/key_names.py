"""How keys are called: by Textual, on the screen, and by whoever writes them into a config file."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

from textual.keys import KEY_NAME_REPLACEMENTS, REPLACED_KEYS, key_to_character

SHOWN = {
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "delete": "del",
}
"""Keys that are shown by another name or sign than their own; a character is shown as itself."""

SYNONYMS = {
    **{shown: name for name, shown in SHOWN.items()},
    "return": "enter",
    "⏎": "enter",
    "page_down": "pagedown",
    "page_up": "pageup",
    " ": "space",
}

NAMED = frozenset(
    {
        *("left", "right", "up", "down", "home", "end", "pageup", "pagedown", "insert", "delete", "backspace"),
        *("tab", "enter", "escape", "space"),
        *(f"f{number}" for number in range(1, 13)),
    }
)

MODIFIERS = ("ctrl", "alt", "shift")

SAME_CODE = {
    "ctrl+i": "tab",
    "ctrl+m": "enter",
    "ctrl+j": "enter",
    "ctrl+h": "backspace",
    "ctrl+left_square_bracket": "escape",
}
"""What a terminal cannot tell from another key."""


class KeyNameError(ValueError):
    """No key is called so; the message says why, or what was meant."""


def parse_key(text: str) -> str:
    """Returns Textual's name of a key: `:` and `colon` are "colon", `←` is "left", `shift+h` is "H".

    Raises `KeyNameError` where there is no such key, or no terminal sends it.
    """
    head, _, last = (text[:-1], "", "+") if text.endswith("+") else text.rpartition("+")
    modifiers = [modifier.strip().lower() for modifier in head.removesuffix("+").split("+") if head]
    unknown = [modifier for modifier in modifiers if modifier not in MODIFIERS]
    if unknown:
        raise KeyNameError(f"there is no key {text!r}: {unknown[0]!r} is none of {', '.join(MODIFIERS)}")
    name = _base(last, text)
    if "shift" in modifiers and len(name) == 1:  # a shifted letter is a capital one
        modifiers.remove("shift")
        name = name.upper()
    ordered = [modifier for modifier in MODIFIERS if modifier in modifiers]
    key = "+".join([*ordered, name.lower() if "ctrl" in ordered and len(name) == 1 else name])
    if key in SAME_CODE:
        raise KeyNameError(f"a terminal sends the same for {key} as for {SAME_CODE[key]}: choose another key")
    return key


def _base(name: str, text: str) -> str:
    """Returns the name of a key without modifiers."""
    name = SYNONYMS.get(name, name)
    if len(name) == 1 and name.isprintable():
        return character_key(name)
    known = name.strip().lower()
    known = SYNONYMS.get(known, known)
    if known in NAMED:
        return known
    character = key_character(known)
    if character is not None:
        return character_key(character)
    near = difflib.get_close_matches(known, sorted(NAMED), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "a key is a character, or left, home, pagedown, f5, ctrl+e …"
    raise KeyNameError(f"there is no key {text!r}: {hint}")


def character_key(character: str) -> str:
    """Returns Textual's name of the key that types a character."""
    if character.isalnum():
        return character
    name = unicodedata.name(character).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


def key_character(name: str) -> str | None:
    """Returns what a key without modifiers types; None where that is nothing, or a blank."""
    character = key_to_character(REPLACED_KEYS.get(name, name))
    return character if character is not None and character.isprintable() and character != " " else None


def is_chord(key: str) -> bool:
    """True where the key, by Textual's name, types nothing: one with ctrl, alt or shift and a name, or f1 to f12."""
    return "+" in key or (key[0] == "f" and key[1:].isdecimal())


def shown_key(key: str) -> str:
    """Returns a key as it is written on the screen."""
    *modifiers, name = key.split("+")
    return "+".join([*modifiers, SHOWN.get(name) or key_character(name) or name])


def shown_keys(keys: Iterable[str]) -> str:
    """Returns the keys that do one thing, as they are written on the screen; a dash where there is none."""
    return " ".join(map(shown_key, keys)) or "—"
