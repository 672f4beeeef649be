"""Text is data: what would be hidden or obeyed is shown, and everything is measured in cells."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.analysis.text import cell_width, fit, token_text, truncate, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [bold]not markup[/bold]", "plain [bold]not markup[/bold]"),
        ("a\nb\r\tc", "a⏎b␍⇥c"),
        ("\x1b[31mred\x1b]0;title\x07", "␛[31mred␛]0;title␇"),
        ("\x00\x7f", "␀␡"),
        ("\x9b31m", "‹U+009B›31m"),  # C1: a terminal may take it for ESC [
        ("abc\u202edef\u2066", "abc‹U+202E›def‹U+2066›"),
        ("zero\u200bwidth\ufeff\u00ad", "zero‹U+200B›width‹U+FEFF›‹U+00AD›"),
        ("tag\U000e0041", "tag‹U+E0041›"),  # text hidden from a reader, not from a model
        ("line\u2028end", "line⏎end"),
        ("no\u00a0break\u3000wide", "no\u00a0break\u3000wide"),
        ("heart\u2764\ufe0f", "heart\u2764"),
        ("日本語 🙂 e\u0301", "日本語 🙂 e\u0301"),
    ],
)
def test_hidden_characters_are_shown_and_markup_stays_text(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(("text", "cells"), [("abc", 3), ("日本", 4), ("🙂", 2), ("e\u0301", 1), ("⏎⇥␛■●", 5)])
def test_width_is_in_cells(text: str, cells: int) -> None:
    assert cell_width(text) == cells


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),  # half a character is none
        ("a日", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_truncation_counts_cells_and_marks_the_cut(text: str, width: int, cut: str) -> None:
    assert truncate(text, width) == cut


def test_fit_pads_to_cells() -> None:
    assert [fit("日本語", 4), fit("日本語", 7), fit("ab", 4)] == ["日… ", "日本語 ", "ab  "]


def _block_texts(pieces: list[bytes | None], block_size: int) -> list[str]:
    token_ids = list(range(900, 900 + len(pieces)))
    return [token_text(pieces, token_ids, at, at + block_size) for at in range(0, len(pieces), block_size)]


def test_a_character_split_over_blocks_belongs_to_the_one_it_begins_in() -> None:
    smile = "🙂".encode()
    pieces: list[bytes | None] = [b"a", smile[:1], smile[1:3], smile[3:] + b"b", "é".encode()[:1], "é".encode()[1:]]
    assert _block_texts(pieces, 2) == ["a🙂", "b", "é"]
    assert _block_texts(pieces, 5) == ["a🙂bé", ""]


def test_broken_bytes_are_shown_as_broken() -> None:
    assert _block_texts([b"a\xff", b"\xa9b", b"\xf0\x9f", b"x"], 2) == ["a\ufffd\ufffdb", "\ufffdx"]
    assert _block_texts([b"open \xe6\x97"], 4) == ["open \ufffd"]


def test_tokens_without_text_are_shown_by_their_ids() -> None:
    assert _block_texts([None, None, b"word", None], 4) == ["900 901 word 903"]


@given(st.text(max_size=40), st.lists(st.integers(0, 60), max_size=12), st.integers(1, 5))
def test_block_texts_put_together_are_the_whole_text(text: str, cuts: list[int], block_size: int) -> None:
    data = text.encode("utf-8", errors="ignore")
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces: list[bytes | None] = [data[a:b] for a, b in pairwise(bounds)]
    assert "".join(_block_texts(pieces, block_size)) == visible(data.decode())
