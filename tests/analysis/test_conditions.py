"""Conditions: what they say when they cannot be read, where they hold in runs worked out by hand, where one stops."""

from __future__ import annotations

import pytest

from kvscope.analysis.conditions import (
    Condition,
    ConditionError,
    StateLook,
    Stop,
    StopSearch,
    matches,
    parse_condition,
)
from kvscope.analysis.searched import Searched
from kvscope.replay.timeline import Timeline
from tests.analysis.reading import read, read_steps
from tests.analysis.runs import preempting, sharing
from tests.recording.runs import BUSY_RUNS, golden_steps


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 0, "a condition is missing, like free_blocks < 4 or preempted"),
        ("free_block < 4", 0, "there is no field free_block: did you mean free_blocks?"),
        ("step >= 3 and preemted", 14, "there is no field preemted: did you mean preempted?"),
        ("free_blocks = 4", 12, "write == instead of ="),
        ("preempted && stalled", 10, "write and instead of &&"),
        ("!stalled", 0, "write not instead of !"),
        ("free_blocks", 0, "free_blocks is a number: compare it, as in free_blocks > 0"),
        ("not waiting", 4, "waiting is a number: compare it, as in waiting > 0"),
        ("status", 0, 'status is a text: compare it, as in status == "WAITING"'),
        ("request == req-7", 11, 'a text stands in quotes: "req-7"'),
        ('request == "req-7', 11, "this text has no closing quote"),
        ('status == "RUNING"', 10, 'status is never "RUNING": did you mean "RUNNING"?'),
        ('status == "runing"', 10, 'status is never "runing": did you mean "RUNNING"?'),
        ("status == running", 10, 'a text stands in quotes: "RUNNING"'),
        ("preempted != refused_by", 0, 'a text stands in quotes: "preempted"'),
        ("request == finished", 11, 'a text stands in quotes: "finished"'),
        ('"blocked" == refused_by', 0, 'refused_by is never "blocked": did you mean "blocks"?'),
        ("free_blocks < ", 13, "something is missing at the end"),
        ("free_blocks < and", 14, "a field or a value belongs here, not and"),
        ("(step > 3", 0, "this ( has no ) behind it"),
        ("step > 3)", 8, "this ) has no ( before it"),
        ("step > 3 stalled", 9, "and or or is missing before stalled"),
        ("1 < step < 3", 9, "one comparison at a time: write and before a second <"),
        ("3 < 4", 2, "two values without a field: name one, as in step >= 300"),
        ("300", 0, "300 is compared with nothing: name a field, as in step >= 300"),
        ('step == "3"', 8, "step (a number) cannot be compared with a text"),
        ("stalled > 1", 10, "stalled (yes or no) cannot be compared with a number"),
        ("stalled > false", 8, "stalled (yes or no) is only equal or not: == or !="),
        ("free_blocks - 1 < 3", 12, "there is no arithmetic in conditions: compare a field with a number"),
        ("__import__('os')", 0, "there is no field __import__: kvscope find --fields lists all of them"),
        ("step > 3 \x1b[2J", 9, "␛ means nothing here"),
        ("not " * 41 + "stalled", 160, "more than 40 conditions within each other"),
        ("x" * 1_001, 1_000, "a condition has at most 1000 characters, this one 1001"),
    ],
)
def test_what_cannot_be_read_says_what_and_where(text: str, column: int, reason: str) -> None:
    with pytest.raises(ConditionError) as raised:
        parse_condition(text)
    assert (raised.value.column, raised.value.reason) == (column, reason)
    assert raised.value.message == f"column {column + 1}: {reason}"


def test_the_caret_stands_below_the_place_also_behind_wide_characters() -> None:
    with pytest.raises(ConditionError) as raised:
        parse_condition('request == "请求" or nobody')
    assert raised.value.pointed() == (
        'request == "请求" or nobody',
        "                     ^",  # 21 cells: two of the characters before are two cells wide
        "there is no field nobody: kvscope find --fields lists all of them",
    )


def steps_of(timeline: Timeline, text: str) -> list[int]:
    """Returns the steps in which the condition holds, by looking at each of them."""
    return [step for step in range(timeline.last_step + 1) if holds(timeline, text, step)]


def holds(timeline: Timeline, text: str, step: int) -> bool:
    return bool(matches(parse_condition(text), StateLook.of(timeline.at(step))))


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("preempted", [1]),
        ("preempted == 0 and step < 3", [0, 2]),
        ('request == "b" and preempted', [1]),
        ('request == "a" and preempted', []),  # it was for a, not of it
        ("finished", [2, 3, 4]),
        ('request == "c" and finished', [3]),
        ("stalled", []),
        ("free_blocks == 0", [0]),
        ("free_blocks >= 1 and not finished", [1]),
        ("waiting == 2", [1, 2]),
        ("running < waiting", [1, 2]),
        ('request == "b" and waiting_steps == 1', [2]),
        ('status == "PREEMPTED" and waiting_steps >= 1', [2]),
        ('request == "b" and refused_by == "full_isl"', [2]),
        ("prefill_tokens > 10", [0]),
        ("(admitted or resumed) and step > 0", [3]),
        ('finish_reason == "length" and output_tokens == 1', [3]),
        ("failed or aborted", []),
        ("step >= 3", [3, 4]),
        ("true == stalled or step == 2", [2]),
    ],
)
def test_where_conditions_hold_in_a_run_worked_out_by_hand(text: str, steps: list[int]) -> None:
    """The run of `preempting`: step 0 admits a and b, 1 preempts b for a and refuses it, 3 brings b and c, 4 ends b."""
    assert steps_of(read(preempting()), text) == steps


def test_what_happens_counts_for_one_request_where_the_condition_names_one() -> None:
    timeline = read(sharing())  # b hits a's two blocks in step 1 and needs one more; a needed three in step 0
    assert steps_of(timeline, "allocated == 3") == [0]
    assert steps_of(timeline, 'request == "a" and allocated == 3') == [0]
    assert steps_of(timeline, 'request == "b" and allocated == 1') == [1]
    assert steps_of(timeline, 'request == "b" and hit and hit_tokens == 8') == [1]
    assert steps_of(timeline, "shared_blocks == 2") == [1]
    assert matches(parse_condition("prefilling or age_steps == 1"), StateLook.of(timeline.at(1))) == {"a"}


def stops(timeline: Timeline, text: str, first: int, last: int, *, is_forwards: bool = True) -> list[int]:
    search = StopSearch(timeline, parse_condition(text))
    found = search.forwards(first, last) if is_forwards else search.backwards(first, last)
    return [stop.step for stop in found if isinstance(stop, Stop)]


CONDITIONS = (
    "preempted",
    "evicted > 1",
    "free_blocks < 4",
    "free_blocks <= 2 and waiting > 0",
    "not (running > 1)",
    "stalled",
    "hit or aborted",
    "cached_blocks > 3",
    "waiting_steps > 2",
    'status == "PREEMPTED"',
    "step >= 5",
    "draft_tokens > 0",
    "decode_tokens > prefill_tokens",
    'admission_stop == "blocks"',
    'status == "WAITING" and priority >= 0',
    'not (status == "RUNNING")',
    'refused_by != "watermark" and refused_by != "blocks" and free_blocks < 3',
    '"abort" == finish_reason',
    "waiting_steps == 0 and computed_tokens < 3",
)


def expected_stops(timeline: Timeline, condition: Condition) -> list[int]:
    """Returns the stops by looking at every step, and remembering for whom it held in the step before."""
    found: list[int] = []
    before: frozenset[str] = frozenset()
    for step in range(timeline.last_step + 1):
        now = matches(condition, StateLook.of(timeline.at(step)))
        if now if condition.has_happening else now - before:
            found.append(step)
        before = now
    return found


@pytest.mark.parametrize("name", BUSY_RUNS[:3])
def test_a_search_stops_where_looking_at_every_step_stops_in_both_directions(name: str) -> None:
    """Figures of the timeline pass over most steps: none of them may be one to stop at."""
    timeline = read_steps(golden_steps(name))
    last = timeline.last_step
    num_found = 0
    for text in CONDITIONS:
        expected = expected_stops(timeline, parse_condition(text))
        num_found += len(expected)
        assert stops(timeline, text, 0, last) == expected, text
        assert stops(timeline, text, 0, last, is_forwards=False) == expected[::-1], text
        middle = last // 2
        assert stops(timeline, text, middle, last) == [step for step in expected if step >= middle], text
        assert stops(timeline, text, 0, middle, is_forwards=False) == [s for s in expected if s <= middle][::-1], text
    assert num_found > 20


def test_a_search_says_how_far_it_is_and_leaves_the_shown_moment_alone() -> None:
    timeline = read_steps(golden_steps(BUSY_RUNS[0]))
    shown = timeline.at(3)
    free = list(shown.state.free_queue)
    found = list(StopSearch(timeline, parse_condition("waiting_steps >= 0")).forwards(0, timeline.last_step))
    assert [part.step for part in found if isinstance(part, Searched)][-1] == timeline.last_step
    assert (shown.state.step, list(shown.state.free_queue)) == (3, free)


def test_a_state_that_ends_and_begins_again_is_two_stops() -> None:
    """Something runs in step 1, nothing after step 2, and again after step 3; c lives from step 1 to 3."""
    timeline = read(preempting())
    assert stops(timeline, 'request == "c" and running > 0', 0, 4) == [1, 3]
    assert stops(timeline, "running > 0", 0, 4) == [0, 3]


def test_a_request_that_never_arrived_is_not_looked_for() -> None:
    timeline = read(preempting())
    assert list(StopSearch(timeline, parse_condition('request == "nobody"')).forwards(0, 4)) == []
