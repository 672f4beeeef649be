"""Where a text ends at a stop string, whatever tokens it comes in: against every place tried one after another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvscope.engine.text_stream import TextStream
from tests.engine.fakes import ByteCodec


class PieceCodec(ByteCodec):
    """Token i stands for the i-th of these pieces; none of them is special."""

    special_token_ids = frozenset()

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]


def read(pieces: Sequence[bytes], stops: Sequence[str], min_tokens: int = 0) -> tuple[str, str | None, list[str]]:
    """Returns the text, the stop string, and what was given away after each token and at the end."""
    stream = TextStream(PieceCodec(pieces), stops, min_tokens)
    given_away = []
    for token_id in range(len(pieces)):
        if stream.add([token_id]) is not None:
            break
        given_away.append(stream.take())
    stream.finish()
    given_away.append(stream.take())
    return stream.text, stream.stop, given_away


@pytest.mark.parametrize(
    ("pieces", "stops", "min_tokens", "text", "stop"),
    [
        # One token completes both: the one that ends first, though the other begins before it.
        ([b"abc"], ["abc", "b"], 0, "a", "b"),
        # Both end at one place: the one that was named first.
        ([b"xab"], ["b", "ab"], 0, "xa", "b"),
        ([b"xab"], ["ab", "b"], 0, "x", "ab"),
        # It begins in the tokens that must come, and ends behind them.
        ([b"a.", b"\n", b"b"], [".\n"], 1, "a", ".\n"),
        ([b"a.", b"\n", b"b"], [".\n"], 2, "a.\nb", None),
        # A longer stop string lets nobody look further back for a short one.
        ([b".", b"ab", b".c"], [".", "a long one"], 1, ".ab", "."),
        # A character in two tokens, and stop strings over them.
        ([b"a\xc3", b"\xa9b", b"c"], ["\u00e9b"], 0, "a", "\u00e9b"),
        ([b"a\xf0\x9f", b"\x99", b"\x82!"], ["\U0001f642"], 0, "a", "\U0001f642"),
    ],
)
def test_a_text_is_cut_in_front_of_the_stop_string_that_is_complete_first(
    pieces: list[bytes], stops: list[str], min_tokens: int, text: str, stop: str | None
) -> None:
    found_text, found_stop, given_away = read(pieces, stops, min_tokens)
    assert (found_text, found_stop, "".join(given_away)) == (text, stop, text)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    pieces=st.lists(st.text("ab\u00e9", min_size=0, max_size=3), max_size=8),
    stops=st.lists(st.text("ab\u00e9", min_size=1, max_size=4), max_size=3),
    min_tokens=st.integers(0, 4),
)
def test_any_text_ends_where_trying_every_place_ends_it(pieces: list[str], stops: list[str], min_tokens: int) -> None:
    expected: tuple[str, str | None] = ("".join(pieces), None)
    first_end = len("".join(pieces[:min_tokens])) + 1
    for end in range(first_end, len("".join(pieces)) + 1):
        stop = next((one for one in stops if "".join(pieces)[:end].endswith(one)), None)
        if stop is not None:
            expected = ("".join(pieces)[: end - len(stop)], stop)
            break
    text, stop_found, given_away = read([piece.encode() for piece in pieces], stops, min_tokens)
    assert (text, stop_found) == expected
    assert "".join(given_away) == text
