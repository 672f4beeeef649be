"""Where two recordings part, from what, and how requests are matched."""

from __future__ import annotations

from kvscope.analysis.comparison import FirstDifference, Pair
from kvscope.analysis.decisions import Decision
from kvscope.analysis.divergence import StandingBefore, diverge, match_requests
from kvscope.replay import MemoryTimeline
from tests.analysis.reading import read
from tests.builders import scenario


def three(budget: int = 64, names: tuple[str, str, str] = ("a", "b", "c"), **settings: int) -> MemoryTimeline:
    """Prompts of 4, 6 and 5 tokens; two of them at step 0, the third at step 1."""
    first, second, third = names
    made = scenario(budget=budget, **settings).request(first, "abcd", reply="12").request(second, "efghij", reply="123")
    return read(made.request(third, "klmno", reply="12", at=1).run())


def test_the_first_difference_has_both_decisions_and_what_they_were_taken_from() -> None:
    found = diverge(three(), three(budget=9))
    assert found.settings == {"max_num_batched_tokens": (64, 9)}
    assert found.comparison.first_difference == FirstDifference(
        step=0,
        base=Decision(scheduled=(("a", 4), ("b", 6)), admitted=("a", "b"), hits=(("a", 0), ("b", 0)), stop="empty"),
        changed=Decision(scheduled=(("a", 4), ("b", 5)), admitted=("a", "b"), hits=(("a", 0), ("b", 0)), stop="empty"),
        fields=("scheduled",),
    )
    before = StandingBefore(
        waiting=(), running=(), num_free_blocks=31, num_cached_blocks=0, arrived=("a", "b"), aborted=()
    )
    assert found.before == (before, before)


def test_what_followed_is_told_of_each_request() -> None:
    found = diverge(three(), three(seqs=2))
    difference = found.comparison.first_difference
    assert difference is not None
    # Step 1: both have a and b running; there is no third sequence for c.
    assert (difference.step, difference.fields) == (1, ("scheduled", "admitted", "hits", "stop"))
    assert found.before is not None
    assert found.before[0] == found.before[1]
    assert found.before[0].running == ("a", "b")
    by_id = {pair.request_id: pair for pair in found.comparison.requests}
    assert [by_id["c"].first_admitted, by_id["c"].finished] == [Pair(1, 2), Pair(2, 3)]
    assert [request_id for request_id, pair in by_id.items() if pair.differs] == ["c"]


def test_equal_recordings_have_no_difference() -> None:
    found = diverge(three(), three())
    assert (found.comparison.first_difference, found.before, found.settings) == (None, None, {})
    assert not any(pair.differs for pair in found.comparison.requests)


def test_requests_under_other_ids_are_matched_by_their_prompts() -> None:
    found = diverge(three(), three(names=("x", "y", "z")))
    assert found.matched.by == "content"
    assert found.matched.names == {"x": "a", "y": "b", "z": "c"}
    assert found.comparison.first_difference is None


def test_ids_that_stand_for_other_prompts_do_not_count() -> None:
    """b and c change names: by id everything differs, by content nothing does."""
    swapped = three(names=("a", "c", "b"))
    assert match_requests(three(), swapped).names == {"a": "a", "c": "b", "b": "c"}
    assert diverge(three(), swapped).comparison.first_difference is None
    assert diverge(three(), swapped, "id").comparison.first_difference is not None


def test_equal_prompts_are_matched_in_the_order_of_arrival_and_the_rest_is_named() -> None:
    one = read(scenario().request("a", "same").request("b", "same").request("c", "mine").run())
    two = read(scenario().request("p", "same").request("q", "same").request("c", "other").run())
    matched = match_requests(one, two, "content")
    assert matched.names == {"p": "a", "q": "b", "c": "c (B)"}
    assert (matched.only_in_a, matched.only_in_b) == (("c",), ("c",))


def test_a_run_that_ends_earlier_parts_where_it_ended() -> None:
    longer = read(scenario().request("a", "abcd", reply="123").run())
    shorter = read(scenario().request("a", "abcd", reply="12").run())
    difference = diverge(longer, shorter).comparison.first_difference
    assert difference == FirstDifference(
        step=2, base=Decision(scheduled=(("a", 1),), stop="empty"), changed=None, fields=()
    )
