"""A search from the middle: near things first, everything once, and taken up where it was left."""

from __future__ import annotations

import pytest

from kvscope.analysis.search import Hit, Reached, parse_query, search, search_around
from kvscope.replay.timeline import Timeline
from tests.analysis.reading import read
from tests.builders import scenario


def hundred_steps() -> Timeline:
    reply = "".join(f"{number:02}wind" for number in range(20))
    return read(scenario(blocks=200, max_model_len=600).request("a", "p", reply=reply).run(1_000))


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.analysis.search.around._FIRST_TURN", 8)
    monkeypatch.setattr("kvscope.analysis.search.around._LONGEST_TURN", 32)
    monkeypatch.setattr("kvscope.analysis.search.run.STRETCH_STEPS", 5)
    monkeypatch.setattr("kvscope.analysis.search.around.LEAD_STEPS", 10)


@pytest.mark.parametrize("begin", [0, 1, 50, 57, 119])
def test_everything_is_found_once_wherever_the_search_begins(begin: int) -> None:
    timeline, query = hundred_steps(), parse_query("output:wind")
    found = list(search_around(timeline, query, 0, 119, Reached(begin, begin - 1)))
    hits = [part for part in found if isinstance(part, Hit)]
    straight = [part for part in search(timeline, query, 0, 119) if isinstance(part, Hit)]
    assert sorted((hit.step, hit.match) for hit in hits) == [(6 * number + 5, "wind") for number in range(20)]
    assert [hit.step for hit in straight] == [6 * number + 5 for number in range(20)]
    assert found[-1] == Reached(0, 119)


def test_both_directions_take_turns_that_grow() -> None:
    found = list(search_around(hundred_steps(), parse_query("output:wind"), 0, 119, Reached(60, 59)))
    assert list(dict.fromkeys(part for part in found if isinstance(part, Reached))) == [
        *(Reached(60, 64), Reached(60, 67), Reached(52, 67)),
        *(Reached(52, 72), Reached(52, 77), Reached(52, 82), Reached(52, 83), Reached(36, 83)),
        *(Reached(36, step) for step in (88, 93, 98, 103, 108, 113, 115)),
        *(Reached(4, 115), Reached(4, 119), Reached(0, 119)),
    ]
    assert [part.step for part in found if isinstance(part, Hit)][:5] == [65, 53, 59, 71, 77]


def test_what_was_left_is_taken_up_where_it_was() -> None:
    found = list(search_around(hundred_steps(), parse_query("output:wind"), 0, 119, Reached(40, 100)))
    steps = [part.step for part in found if isinstance(part, Hit)]
    assert steps == [101, 107, 35, 113, 119, 17, 23, 29, 5, 11]
