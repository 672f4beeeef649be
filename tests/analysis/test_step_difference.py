"""Two steps of one recording, block by block and request by request."""

from __future__ import annotations

import pytest

from kvscope.analysis.journey import Between
from kvscope.analysis.step_difference import BlockDifference, RequestDifference, StepDifference, step_difference
from kvscope.errors import RecordingError, UsageError
from tests.analysis.reading import read
from tests.analysis.runs import preempting, sharing


def test_blocks_requests_and_counts_over_a_preemption() -> None:
    """Step 0: a and b hold two blocks each. Step 3: a is gone, b is back, c came and went in between and at the end."""
    run = preempting()
    found = step_difference(read(run), 3, 0)
    assert (found.step_a, found.step_b) == (0, 3)
    assert found.between == Between(
        num_steps=3,
        duration_ns=None,
        num_scheduled_tokens=1 + 1 + 2 + 2,
        num_preempted=1,
        num_admitted=1,
        num_resumed=1,
        num_finished=2,
        num_aborted=0,
        num_evicted_blocks=1,
        num_hit_tokens=4,
    )
    assert found.requests == (
        RequestDifference(
            request_id="b",
            change="preempted",
            status_a="running",
            status_b="running",
            num_blocks=(2, 2),
            num_computed_tokens=(5, 6),
            num_tokens=(6, 7),
            queue_position=(None, None),
            num_preemptions=1,
            num_steps_run=1,
        ),
        RequestDifference(
            request_id="a",
            change="changed",
            status_a="running",
            status_b="finished",
            num_blocks=(2, 0),
            num_computed_tokens=(8, 0),
            num_tokens=(9, 9),
            queue_position=(None, None),
            num_preemptions=0,
            num_steps_run=2,
        ),
        RequestDifference(
            request_id="c",
            change="changed",
            status_a="not arrived",
            status_b="finished",
            num_blocks=(0, 0),
            num_computed_tokens=(0, 2),
            num_tokens=(0, 3),
            queue_position=(None, None),
            num_preemptions=0,
            num_steps_run=1,
        ),
    )
    # Each kind that came once by its step, then the kind that came twice.
    assert [(step, said.tone) for step, said in found.happenings] == [
        (1, "preempted"),
        (3, "hit"),
        (3, "admitted"),
        (2, "finished"),
        (3, "finished"),
    ]


def test_the_two_states_are_told_before_the_steps_in_between_are_read() -> None:
    run = preempting()
    told: list[StepDifference] = []
    found = step_difference(read(run), 0, 3, told.append)
    early = told[0]
    assert (len(told), early.step_a, early.step_b, early.between, early.happenings) == (1, 0, 3, None, ())
    assert (early.figures, early.blocks, early.num_blocks) == (found.figures, found.blocks, found.num_blocks)
    assert early.num_published == found.num_published
    assert [
        (one.request_id, one.change, one.status_a, one.status_b, one.num_blocks, one.num_steps_run)
        for one in early.requests
    ] == [
        ("a", "changed", "running", "ended", (2, 0), 0),
        ("c", "changed", "not arrived", "finished", (0, 0), 0),
        ("b", "went_on", "running", "running", (2, 2), 0),
    ]


def test_each_block_says_what_became_of_it() -> None:
    """Step 0: a holds 1, 2, 3. Step 1: b holds 1 and 2 too, and block 4. Step 2: a is gone."""
    timeline = read(sharing())
    same, taken, back, other = (
        BlockDifference.SAME,
        BlockDifference.TAKEN,
        BlockDifference.GIVEN_BACK,
        BlockDifference.OTHER_OWNER,
    )
    first = step_difference(timeline, 0, 1)
    assert list(first.blocks[:6]) == [BlockDifference.NULL, other, other, same, taken, BlockDifference.FREE]
    second = step_difference(timeline, 1, 2)
    assert list(second.blocks[:6]) == [BlockDifference.NULL, other, other, back, same, BlockDifference.FREE]
    assert first.num_blocks[other] == 2
    differing = {pair.name: (pair.a, pair.b) for pair in first.figures if pair.differs}
    assert differing == {
        "live blocks": (3, 4),
        "shared blocks": (0, 2),
        "free blocks": (28, 27),
        "running": (1, 2),
        "tokens in step": (9, 3),
        "prefill tokens": (9, 2),
        "decode tokens": (0, 1),
    }
    names = [pair.name for pair in first.figures]
    assert names[: len(differing)] == list(differing)


def test_a_step_outside_or_the_same_step_twice_is_refused() -> None:
    timeline = read(sharing())
    with pytest.raises(RecordingError, match="there is no step 9"):
        step_difference(timeline, 0, 9)
    with pytest.raises(UsageError, match="two different steps"):
        step_difference(timeline, 1, 1)
