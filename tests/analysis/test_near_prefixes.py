"""Prompts that nearly share a prefix. What would have hit is held against the run with what differs at the end."""

from __future__ import annotations

import pytest

from kvscope.analysis import near_prefixes as module
from kvscope.analysis.detectors import Finding, find_all
from kvscope.analysis.near_prefixes import NearMiss, NearPrefix, near_prefixes
from tests.analysis.reading import read
from tests.builders import CheckedRun, ScenarioBuilder, scenario

RULES = " you are a helpful bot"  # 22 tokens


def _dated(*dates: str) -> ScenarioBuilder:
    builder = scenario()
    for index, date in enumerate(dates):
        builder.request(f"r{index}", date + RULES, reply="xy", at=3 * index)
    return builder


def _findings(run: CheckedRun) -> list[Finding]:
    return [finding for finding in find_all(read(run)) if finding.kind == "nearly_shared_prefix"]


def _hit_tokens(run: CheckedRun) -> dict[str, int]:
    hits: dict[str, int] = {}
    for record in run.dump():
        hits |= record["prefix_hit_tokens"]
    return hits


def test_a_date_at_the_head_makes_all_behind_it_miss() -> None:
    """10:0 is one block of 4, and hits; the rest would fill six with it."""
    run = _dated("10:01", "10:02").run()
    assert near_prefixes(read(run)) == [
        NearPrefix(
            "r0",
            [
                NearMiss(
                    step=3,
                    request_id="r1",
                    other_id="r0",
                    first_difference=4,
                    num_differing=1,
                    num_others_differing=1,
                    num_alike=22,
                    num_hit_tokens=4,
                    num_more_tokens=20,
                    is_salt=False,
                )
            ],
        )
    ]
    (found,) = _findings(run)
    assert (found.first_step, found.last_step, found.num_steps, found.request_ids) == (3, 3, 1, ("r1", "r0"))
    assert found.figures == {
        "other": "r0",
        "requests": ["r1"],
        "differ_by": "tokens",
        "first_difference": [4],
        "differing_tokens": [1],
        "others_differing_tokens": [1],
        "alike_tokens_behind": [22],
        "hit_tokens": 4,
        "more_hit_tokens": 20,
    }
    assert str(found.sentence) == (
        "○ r1 nearly shares a prefix with r0: at token 4 it has “:02” for “:01”, and behind that 22 tokens on end "
        "are alike; 20 more tokens would have hit: what differs would have to stand behind them (with nothing evicted)"
    )


def test_what_would_have_hit_hits_where_the_difference_stands_behind() -> None:
    run = scenario().request("r0", f"10:0{RULES}1", reply="xy").request("r1", f"10:0{RULES}2", reply="xy", at=3).run()
    assert _hit_tokens(run)["r1"] == 4 + 20
    assert near_prefixes(read(run)) == []


def test_all_that_are_like_one_are_one_finding_and_what_is_alike_may_be_shifted() -> None:
    """The third one's date is four tokens longer, and begins otherwise: it hits nothing, and would fill five blocks."""
    run = _dated("10:01", "10:02", "Mon 10:03").run()
    (near,) = near_prefixes(read(run))
    assert [(m.request_id, m.first_difference, m.num_differing, m.num_others_differing) for m in near.misses] == [
        ("r1", 4, 1, 1),
        ("r2", 0, 9, 5),
    ]
    assert [(m.num_hit_tokens, m.num_alike, m.num_more_tokens) for m in near.misses] == [(4, 22, 20), (0, 22, 20)]
    (found,) = _findings(run)
    assert found.request_ids == ("r1", "r2", "r0")
    assert (found.figures["hit_tokens"], found.figures["more_hit_tokens"]) == (4, 40)
    assert str(found.sentence).startswith(
        "○ r1 and r2 nearly share a prefix with r0: at token 4 r1 has “:02” for “:01”, and"
    )


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("be kind, you are a helpful bot", "you are a helpful bot", "at token 0 it lacks 9 tokens (“be kind,…”)"),
        ("hi, you are a helpful bot", "hi, and you are a helpful bot", "at token 4 it has 4 tokens more (“, and ”)"),
    ],
)
def test_what_one_of_them_does_not_have_is_told_so(first: str, second: str, told: str) -> None:
    (found,) = _findings(scenario().request("a", first, reply="xy").request("b", second, reply="xy", at=3).run())
    assert f"○ b nearly shares a prefix with a: {told}, and behind that 21 tokens on end are alike" in str(
        found.sentence
    )


def test_many_are_counted_and_those_that_lost_most_are_told() -> None:
    """Ten texts of 12 to 21 tokens, each twice with another first letter."""
    builder = scenario(blocks=512, seqs=32, budget=512)
    for number in range(10):
        text = "".join(chr(0x4E00 + 64 * number + place) for place in range(12 + number))
        builder.request(f"a{number}", f"1{text}", reply="xy").request(f"b{number}", f"2{text}", reply="xy", at=3)
    found = _findings(builder.run())
    assert [finding.request_ids[0] for finding in found] == [f"b{n}" for n in (8, 9, 4, 5, 6, 7, 0, 1, 2)]
    assert str(found[-1].sentence) == (
        "○ 2 other requests nearly share a prefix with one before them; 24 more tokens would have hit "
        "(with nothing evicted)"
    )


def test_another_salt_keeps_the_same_text_apart() -> None:
    """Of 24 tokens five blocks may hit: the last token is always computed. The second one of tenant b hits them."""
    rules = RULES + "!!"
    builder = scenario().request("a", rules, reply="xy", cache_salt="a").request("b", rules, reply="xy", at=3)
    run = builder.request("b2", rules, reply="xy", at=6).run()
    (found,) = _findings(run)
    assert found.request_ids == ("b", "a")
    assert (found.figures["differ_by"], found.figures["more_hit_tokens"]) == ("cache_salt", 20)
    assert str(found.sentence) == (
        "○ b nearly shares a prefix with a: the same 24 tokens under another cache_salt (none for “a”); 20 more tokens "
        "would have hit under the same one, if they are not to be kept apart (with nothing evicted)"
    )


def test_two_adapters_have_nothing_in_common() -> None:
    builder = scenario().request("a", f"1{RULES}", reply="xy", lora_name="a")
    assert near_prefixes(read(builder.request("b", f"2{RULES}", reply="xy", lora_name="b", at=3).run())) == []


@pytest.mark.parametrize(
    ("first", "second", "at"),
    [
        ("you are kind. who?", "you are kind. why?", 3),  # what they share hits
        ("1" + RULES, "2" + RULES, 0),  # computed in the same step: nothing was there to hit
        ("1 bot", "2 bot", 3),  # alike for less than a run
        ("1" * 23 + RULES, "2" * 23 + RULES, 3),  # more differs than is alike
        ("abcd" + RULES, "abcd" + RULES[::-1], 3),  # behind the difference nothing is alike
    ],
    ids=["a plain prefix", "at once", "a few tokens", "mostly other", "another text"],
)
def test_what_is_no_near_prefix(first: str, second: str, at: int) -> None:
    run = scenario().request("a", first, reply="xy").request("b", second, reply="xy", at=at).run()
    assert near_prefixes(read(run)) == []


def test_without_prefix_caching_nothing_could_have_hit() -> None:
    builder = scenario(enable_prefix_caching=False).request("a", "1" + RULES, reply="xy")
    assert near_prefixes(read(builder.request("b", "2" + RULES, reply="xy", at=3).run())) == []


def test_only_the_prompts_that_were_met_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = scenario().request("a", "1" + RULES, reply="xy").request("other", "something else", reply="xy", at=3)
    run = builder.request("b", "2" + RULES, reply="xy", at=6).run()
    assert [near.other_id for near in near_prefixes(read(run))] == ["a"]
    monkeypatch.setattr(module, "MAX_KNOWN", 1)
    assert near_prefixes(read(run)) == []


def test_a_difference_behind_a_long_plain_prefix_is_found_though_the_prefix_was_lost() -> None:
    """c has the whole prefix of a, which was evicted for b: 40 tokens are no difference. Behind them one token is."""
    head = "0123456789" * 4
    builder = scenario(blocks=19).request("a", f"{head}1{RULES}", reply="x").request("b", "b" * 70, reply="x", at=2)
    run = builder.request("c", f"{head}2{RULES}", reply="x", at=6).run()
    assert _hit_tokens(run).get("c", 0) == 0
    ((miss,),) = (near.misses for near in near_prefixes(read(run)))
    assert (miss.first_difference, miss.num_alike, miss.num_more_tokens) == (40, 22, 60)
