"""Sentences as records: joined, listed, and wrapped without cutting a word or a figure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvscope.analysis.spans import (
    Entity,
    Sentence,
    Span,
    block_list,
    count,
    dotted,
    figure,
    listed,
    plain,
    request,
    say,
    strong,
    wrap,
)
from kvscope.analysis.text import cell_width


def _texts(lines: list[tuple[Span, ...]]) -> list[str]:
    return [plain(line) for line in lines]


def test_words_of_one_role_are_one_span_and_entities_stay_apart() -> None:
    spans = say("a ", "b ", request("r1"), request("r2"), figure("3"), figure(" of 4"))
    assert spans == (
        Span("a b "),
        Span("r1", "entity", Entity("request", "r1")),
        Span("r2", "entity", Entity("request", "r2")),
        Span("3 of 4", "figure"),
    )


def test_an_id_with_escapes_is_shown_and_still_leads_to_its_request() -> None:
    sentence = Sentence("▲", "preempted", say(request("r\x1b[1m"), " preempted"))
    assert str(sentence) == "▲ r␛[1m preempted"
    assert sentence.entities == [Entity("request", "r\x1b[1m")]


def test_counts_agree_with_their_noun() -> None:
    assert [count(0, "block"), count(1, "block"), count(2, "block")] == ["0 blocks", "1 block", "2 blocks"]


def test_lists_say_how_much_they_leave_out() -> None:
    assert plain(say(*listed(["a"], 2))) == "a"
    assert plain(say(*listed(["a", "b"], 2))) == "a and b"
    assert plain(say(*listed(["a", "b", "c"], 2))) == "a, b and 1 other"
    assert plain(say(*dotted([["a"], ["b"], ["c"]], 2))) == "a · b · 1 more request"


def test_blocks_in_a_row_are_a_range_either_way() -> None:
    assert plain(say(*block_list([4, 5, 6, 9, 8, 7, 6, 1, 2], 9))) == "4–6 9–6 1 2"
    assert plain(say(*block_list([4, 5, 6, 9, 3, 7, 8, 9], 2))) == "4–6 9 +4"
    assert plain(say(*block_list([7], 2))) == "7"


def test_wrapping_breaks_at_spaces_across_spans() -> None:
    spans = say(request("req-28"), " preempted for ", request("req-18"), ", which needed ", figure("1 block"))
    assert _texts(wrap(spans, 24)) == ["req-28 preempted for", "req-18, which needed 1", "block"]
    assert wrap(spans, 24)[1][0] == Span("req-18", "entity", Entity("request", "req-18"))


def test_a_duration_keeps_its_unit() -> None:
    assert _texts(wrap(say("took ", figure("0.6 ms"), " + 12 ms forward"), 9)) == [
        "took",
        "0.6 ms +",
        "12 ms",
        "forward",
    ]


def test_an_entity_holds_together_even_with_spaces_in_its_id() -> None:
    assert _texts(wrap(say("see ", request("my own id"), " there"), 10)) == ["see", "my own id", "there"]


def test_a_word_wider_than_a_line_is_broken_in_cells() -> None:
    assert _texts(wrap(say("日本語日本"), 5)) == ["日本", "語日", "本"]
    assert _texts(wrap(say("ab ", strong("cdefghij")), 4)) == ["ab", "cdef", "ghij"]


def test_nothing_is_one_empty_line() -> None:
    assert _texts(wrap((), 10)) == [""]


@given(st.lists(st.text(alphabet="ab日 .", max_size=8), max_size=8), st.integers(2, 12))
def test_wrapping_loses_nothing_but_spaces_at_line_ends(texts: list[str], width: int) -> None:
    spans = say(*texts)
    lines = wrap(spans, width)
    assert all(cell_width(plain(line)) <= width for line in lines)
    assert "".join(_texts(lines)).replace(" ", "") == plain(spans).replace(" ", "")
