"""The exact bytes of each token, from how a vocabulary spells them.

Two spellings exist: byte-level BPE maps every byte to a printable character (GPT-2's table), and sentencepiece writes a
space as ▁ and bytes that have no token of their own as <0x0A>.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_alphabet() -> dict[str, int]:
    """Returns GPT-2's table: the character that stands for each byte, and the byte.

    Printable latin-1 bytes stand for themselves; the others, in order, for the characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def byte_level_bytes(tokens: Sequence[str], literal_ids: Iterable[int]) -> list[bytes]:
    """Returns each token's bytes; tokens of `literal_ids` (added ones) are spelled as they are."""
    alphabet = byte_level_alphabet()
    literal = set(literal_ids)
    result = []
    for token_id, token in enumerate(tokens):
        if token_id in literal or any(character not in alphabet for character in token):
            result.append(token.encode("utf-8", errors="replace"))
        else:
            result.append(bytes(alphabet[character] for character in token))
    return result


def sentencepiece_bytes(tokens: Sequence[str], literal_ids: Iterable[int]) -> list[bytes]:
    """Returns each token's bytes; tokens of `literal_ids` (added ones) are spelled as they are."""
    literal = set(literal_ids)
    result = []
    for token_id, token in enumerate(tokens):
        if token_id in literal:
            result.append(token.encode("utf-8", errors="replace"))
        elif match := _BYTE_TOKEN.fullmatch(token):
            result.append(bytes([int(match[1], 16)]))
        else:
            result.append(token.replace("▁", " ").encode("utf-8", errors="replace"))
    return result
