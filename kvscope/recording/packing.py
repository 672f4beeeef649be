"""Packs sequences of numbers so that they are small and plain SQL can still search and unpack them.

Blocks, counts and places are text, one character a number: `chr(value + 3)`, moved past the surrogates. That is 1 byte
up to 124, 2 up to 2,044, 3 up to 63,484, 4 beyond. `instr(data, char(7 + 3))` finds block 7, and
`unicode(substr(data, i, 1)) - 3` reads the i-th number. -1 (a placeholder draft) is the smallest value. U+0001 never
occurs: a text that begins with it holds JSON instead.

Token ids are bytes, since most lie beyond 2,044: the first byte says how many bytes each takes (2, or 3 where one is
above 65,535), then they follow, the highest byte first.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence

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


def pack_token_ids(token_ids: Sequence[int]) -> bytes:
    """Returns the ids as bytes. Raises `ValueError` where one is negative or takes more than three bytes."""
    try:
        numbers = array("I", token_ids)  # half the time of "H", whose items go through a parser
    except OverflowError as error:
        raise ValueError("a token id is negative or too large") from error
    if sys.byteorder == "little":
        numbers.byteswap()
    wide = numbers.tobytes()
    if _has_any(wide[::4]):
        raise ValueError("a token id takes more than three bytes")
    width = 3 if _has_any(wide[1::4]) else 2
    packed = bytearray(width * len(token_ids) + 1)
    packed[0] = width
    for byte in range(width):
        packed[1 + byte :: width] = wide[4 - width + byte :: 4]
    return bytes(packed)


def _has_any(data: bytes) -> bool:
    """As `any`, without a look at each byte by the interpreter."""
    return bool(data.strip(b"\0"))


def unpack_token_ids(packed: bytes) -> tuple[int, ...]:
    """Returns the ids of packed bytes. Raises `ValueError` where they are not such."""
    width, length = packed[0] if packed else 0, len(packed) - 1
    if width == 2 and length % 2 == 0:
        return struct.unpack(f">{length // 2}H", packed[1:])
    if width == 3 and length % 3 == 0:
        wide = bytearray(length // 3 * 4)
        for byte in range(3):
            wide[1 + byte :: 4] = packed[1 + byte :: 3]
        return struct.unpack(f">{length // 3}I", wide)
    raise ValueError("token ids of an unknown width")


def some_token_ids(packed: bytes, first: int, count: int) -> tuple[int, ...]:
    """Returns `count` ids from a place on, without unpacking the others."""
    width = packed[0] if packed else 0
    begin = 1 + first * width
    return unpack_token_ids(packed[:1] + packed[begin : begin + count * width])


def sql_token_id(blob_sql: str, index_sql: str) -> str:
    """Returns the SQL expression for the token id at a place, counted from 0."""
    width = f"unicode(substr({blob_sql}, 1, 1))"
    digits = f"substr('00' || hex(substr({blob_sql}, 2 + ({index_sql}) * {width}, {width})), -6)"
    parts = (f"(instr('123456789ABCDEF', substr({digits}, {place}, 1)) << {24 - 4 * place})" for place in range(1, 7))
    return f"({' + '.join(parts)})"


def sql_num_token_ids(blob_sql: str) -> str:
    """Returns the SQL expression for the number of token ids."""
    return f"((length({blob_sql}) - 1) / unicode(substr({blob_sql}, 1, 1)))"


def sql_number(character_sql: str) -> str:
    """Returns the SQL expression for the number of a one-character SQL expression."""
    limit = _SURROGATES_BEGIN
    return f"(unicode({character_sql}) - {OFFSET} - (unicode({character_sql}) >= {limit}) * {_NUM_SURROGATES})"
