"""Sequences of numbers as a checkpoint holds them: as differences, and as planes of bytes."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, chain
from operator import sub

_SIZE = 4
"""Bytes a number."""


def differences(values: Sequence[int]) -> list[int]:
    """Returns each number less the one before it."""
    return list(map(sub, values, chain((0,), values)))


def sums(values: Sequence[int]) -> list[int]:
    """Returns the numbers that have these differences."""
    return list(accumulate(values))


def planes(values: Sequence[int]) -> bytes:
    """Returns the values in four bytes each, the lowest bytes of all first: alike bytes together pack well."""
    raw = _little_endian(array("i", values)).tobytes()
    return b"".join(raw[plane::_SIZE] for plane in range(_SIZE))


def from_planes(data: bytes) -> array[int]:
    """Returns the values again."""
    size = len(data) // _SIZE
    raw = bytearray(size * _SIZE)
    for plane in range(_SIZE):
        raw[plane::_SIZE] = data[plane * size : plane * size + size]
    return _little_endian(array("i", bytes(raw)))


def _little_endian(values: array[int]) -> array[int]:
    """Returns the values for a change between this machine's order of bytes and the checkpoint's."""
    assert values.itemsize == _SIZE
    if sys.byteorder == "big":
        values.byteswap()
    return values
