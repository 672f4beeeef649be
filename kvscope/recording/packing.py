"""Packs sequences of small numbers into text, one character a number, so that SQLite can search and unpack them.

The character for `value` is `chr(value + 3)`, moved past the surrogates: 1 byte up to 124, 2 up to 2,044, 3 up to 63,484,
4 beyond. `instr(data, char(7 + 3))` finds block 7 in plain SQL; `unicode(substr(data, i, 1)) - 3` reads the i-th number.
-1 (a placeholder draft) is the smallest value. U+0001 never occurs: a text that begins with it holds JSON instead.
"""

from __future__ import annotations

from collections.abc import Iterable

JSON_MARK = "\x01"
"""Begins a text that holds the whole event as JSON, because a value of it does not fit its column."""

OFFSET = 3
MIN_VALUE = -1
_SURROGATES_BEGIN = 0xD800
_NUM_SURROGATES = 0x800
MAX_VALUE = 0x10FFFF - _NUM_SURROGATES - OFFSET
_LAST_BELOW_SURROGATES = chr(_SURROGATES_BEGIN - 1)


def pack_one(value: int) -> str:
    """Returns the character of a number. Raises `ValueError` where it has none."""
    if not MIN_VALUE <= value <= MAX_VALUE:
        raise ValueError(f"{value} is not in {MIN_VALUE}…{MAX_VALUE}")
    code = value + OFFSET
    return chr(code if code < _SURROGATES_BEGIN else code + _NUM_SURROGATES)


class _Characters(dict[int, str]):
    """The characters that were asked for before: most numbers come many times."""

    def __missing__(self, value: int) -> str:
        character = pack_one(value)
        if len(self) < 1 << 18:
            self[value] = character
        return character


_character_of = _Characters().__getitem__


def pack(values: Iterable[int]) -> str:
    """Returns the numbers as text. Raises `ValueError` where one has no character."""
    return "".join(map(_character_of, values))


def unpack(text: str) -> tuple[int, ...]:
    """Returns the numbers of a packed text."""
    if max(text, default="") <= _LAST_BELOW_SURROGATES:
        return tuple([ord(character) - OFFSET for character in text])
    return tuple(map(unpack_one, text))


def unpack_one(character: str) -> int:
    """Returns the number of one character."""
    code = ord(character)
    return (code if code < _SURROGATES_BEGIN else code - _NUM_SURROGATES) - OFFSET


def sql_number(character_sql: str) -> str:
    """Returns the SQL expression for the number of a one-character SQL expression."""
    limit = _SURROGATES_BEGIN
    return f"(unicode({character_sql}) - {OFFSET} - (unicode({character_sql}) >= {limit}) * {_NUM_SURROGATES})"
