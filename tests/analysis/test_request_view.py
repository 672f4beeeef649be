"""One request at a step: facts, block table, sharers, what happened to it, its life, where its time went."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from kvscope import events as ev
from kvscope.analysis.block_table import BlockRow, BlockTableView, Sharer, block_table, sharers
from kvscope.analysis.happenings import happenings
from kvscope.analysis.history import turns
from kvscope.analysis.life import LifeRun, TimeShare, life, time_shares
from kvscope.analysis.pool_view import BlockChange
from kvscope.analysis.request_view import RequestFacts, request_facts, sampling_words
from kvscope.analysis.spans import plain
from kvscope.analysis.step_facts import StepShare
from tests.analysis.reading import read, read_steps
from tests.analysis.runs import preempting, sharing
from tests.builders import CheckedRun, scenario


def _facts(run: CheckedRun, step: int, request_id: str) -> RequestFacts:
    timeline = read(run)
    facts = request_facts(timeline, timeline.at(step), request_id)
    assert facts is not None
    return facts


def test_all_facts_of_a_resumed_request() -> None:
    facts = _facts(preempting(), 3, "b")
    assert plain(facts.hit) == "4 tokens hit, 1 block of its own"
    assert dataclasses.replace(facts, hit=()) == RequestFacts(
        request_id="b",
        status="RUNNING",
        phase="prefill",
        num_prompt_tokens=5,
        num_output_tokens=2,
        max_tokens=3,
        num_tokens=7,
        num_computed_tokens=6,
        num_blocks=2,
        num_new_blocks=1,
        share=StepShare(request_id="b", num_tokens=2, num_draft_tokens=0, is_prefill=True, num_computed_before=4),
        priority=0,
        cache_salt=None,
        lora_name=None,
        sampling="greedy",
        arrival_step=0,
        waiting_since_step=None,
        first_admitted_step=0,
        first_token_step=0,
        finished_step=None,
        finish_reason=None,
        num_preemptions=1,
        num_lost_tokens=5,
        num_hit_tokens=4,
        num_own_hit_tokens=4,
        num_hit_blocks=1,
        hit=(),
        queue_position=None,
        prompt="ijklm",
    )


@pytest.mark.parametrize(
    ("step", "request_id", "phase"),
    [
        (0, "c", "not arrived"),
        (1, "c", "waiting"),
        (1, "b", "preempted"),
        (1, "a", "decode"),
        (2, "a", "finished"),
        (4, "a", "finished"),
    ],
)
def test_the_phase_is_that_of_the_step(step: int, request_id: str, phase: str) -> None:
    assert _facts(preempting(), step, request_id).phase == phase


def test_outside_its_life_a_request_is_known_as_a_whole_only() -> None:
    before, after = _facts(preempting(), 0, "c"), _facts(preempting(), 4, "a")
    assert (before.arrival_step, before.num_prompt_tokens, before.num_output_tokens, before.finished_step) == (
        1,
        2,
        0,
        None,
    )
    assert (after.num_output_tokens, after.finished_step, after.finish_reason, after.num_blocks) == (3, 2, "length", 0)
    assert request_facts(read(preempting()), read(preempting()).at(0), "nobody") is None


def test_the_hit_or_why_none() -> None:
    run = sharing()
    assert plain(_facts(run, 1, "a").hit) == "no hit: no block of it is cached"
    assert plain(_facts(run, 1, "b").hit) == "8 tokens hit, 2 blocks of a"
    assert _facts(preempting(), 1, "c").hit == ()


def test_a_waiting_request_has_its_place() -> None:
    assert [_facts(preempting(), 1, request_id).queue_position for request_id in "abc"] == [None, 0, 1]


def test_sampling_settings_in_words() -> None:
    assert sampling_words('{"temperature": 0, "max_tokens": 9, "top_p": 0.9}') == "greedy, top_p 0.9"
    assert sampling_words('{"stop": ["\\u001b"]}') == "stop ['\\x1b']"
    assert sampling_words("{}") == "default"


def test_rows_of_a_block_table() -> None:
    timeline = read(preempting())
    assert block_table(timeline, timeline.at(3), "b", [0, 1, 2]) == BlockTableView(
        num_blocks=2,
        num_hit_blocks=1,
        rows=(
            BlockRow(
                index=0,
                block_id=3,
                change=BlockChange.HIT,
                ref_cnt=1,
                is_published=True,
                is_hit=True,
                origin_id="b",
                since_step=3,
                text="ijkl",
                num_tokens=4,
            ),
            BlockRow(
                index=1,
                block_id=4,
                change=BlockChange.NEW,
                ref_cnt=1,
                is_published=False,
                is_hit=False,
                origin_id=None,
                since_step=3,
                text="muv",
                num_tokens=2,
            ),
        ),
    )


def test_only_the_rows_that_are_asked_for_and_each_since_its_step() -> None:
    timeline = read(preempting())
    moment = timeline.at(2)
    assert block_table(timeline, moment, "c", [0]) == BlockTableView(num_blocks=0, num_hit_blocks=0, rows=())
    timeline = read(sharing())
    rows = block_table(timeline, timeline.at(1), "b", [2, 0]).rows
    assert [(row.index, row.block_id, row.ref_cnt, row.origin_id, row.since_step, row.text) for row in rows] == [
        (2, 4, 1, None, 1, "?!u"),
        (0, 1, 2, "a", 1, "sysp"),
    ]


def test_sharers_hold_the_same_head_of_their_tables() -> None:
    timeline = read(sharing())
    assert sharers(timeline.at(1), "a") == [Sharer("b", 2, 8)]
    assert sharers(timeline.at(2), "b") == []  # a has ended


def _happened(run: CheckedRun, step: int, request_id: str) -> list[tuple[int, str]]:
    timeline = read(run)
    return [(told.step, str(told.sentence)) for told in happenings(timeline, timeline.at(step), request_id)]


def test_what_happened_to_a_victim() -> None:
    assert _happened(preempting(), 4, "b") == [
        (0, "↓ arrived with 5 prompt tokens"),
        (0, "→ admitted at once: no hit, 5 scheduled"),
        (0, "━ first token"),
        (1, "▲ b preempted for a, which needed 1 block with 0 free: 2 of 2 blocks freed, 5 tokens thrown away"),
        (2, "✗ refused: need 2 > 1 free"),
        (3, "● resumed after 2 steps: 4 tokens hit in 1 block of its own, 2 scheduled"),
        (4, "✓ finished (length) with 3 tokens"),
    ]
    assert _happened(preempting(), 1, "a")[-1] == (
        1,
        "▲ b preempted for a, which needed 1 block with 0 free: 2 of 2 blocks freed, 5 tokens thrown away",
    )
    assert [step for step, _ in _happened(preempting(), 2, "b")] == [0, 0, 0, 1, 2]


def test_refusals_in_a_row_are_one() -> None:
    run = scenario(seqs=1).request("a", "abc", reply="vwxyz").request("b", "de").run()
    assert _happened(run, 5, "b")[1] == (0, "✗ refused 5× up to 4: seqs 1/1")


def test_a_life_is_runs_of_states() -> None:
    timeline = read(preempting())
    assert life(timeline, "b", 0, 4) == [
        LifeRun("prefill", 0, 0),
        LifeRun("preempted", 1, 2),
        LifeRun("prefill", 3, 3),
        LifeRun("finished", 4, 4),
    ]
    assert life(timeline, "c", 0, 4) == [LifeRun("waiting", 1, 2), LifeRun("finished", 3, 3)]
    assert life(timeline, "b", 2, 3) == [LifeRun("preempted", 2, 2), LifeRun("prefill", 3, 3)]
    assert life(timeline, "nobody", 0, 4) == []


def test_an_abort_is_told_from_an_end() -> None:
    """b loses its two blocks in step 1 and is aborted while it waits for them."""
    run = (
        scenario(blocks=5, budget=16)
        .request("a", "abcdefgh", reply="xyz")
        .request("b", "ijklm", reply="uvw", cancel_step=2)
        .run()
    )
    timeline = read(run)
    assert [(turn.step, turn.kind) for turn in turns(timeline, "b", 4)] == [
        (0, "arrived"),
        (0, "admitted"),
        (1, "decoding"),
        (1, "preempted"),
        (2, "aborted"),
    ]
    assert life(timeline, "b", 0, 4) == [
        LifeRun("prefill", 0, 0),
        LifeRun("preempted", 1, 1),
        LifeRun("finished", 2, 2),
    ]


def test_running_without_a_token_is_told_from_decoding() -> None:
    """In step 1 the budget goes to a's drafts and to b."""
    run = (
        scenario(budget=4, num_spec_tokens=2)
        .request("a", "a", reply="uvwx", drafts=["vw"])
        .request("b", "b", reply="yz")
        .request("c", "c", reply="xyz")
        .run()
    )
    assert life(read(run), "c", 0, 3) == [
        LifeRun("prefill", 0, 0),
        LifeRun("nothing", 1, 1),
        LifeRun("decode", 2, 2),
        LifeRun("finished", 3, 3),
    ]


def _with_clock(run: CheckedRun) -> list[tuple[int, list[ev.Event]]]:
    """Steps that begin every 10 ms and take 6; requests arrive 2 ms before the first."""
    clocked: list[tuple[int, list[ev.Event]]] = []
    for step, events in run.sink.steps:
        told: list[ev.Event] = []
        for event in events:
            if isinstance(event, ev.StepStarted):
                event = msgspec.structs.replace(event, time_ns=(step + 1) * 10_000_000)
            elif isinstance(event, ev.RequestArrived):
                event = msgspec.structs.replace(event, arrival_ns=8_000_000)
            elif isinstance(event, ev.StepFinished):
                event = ev.StepFinished(schedule_ns=1_000_000, forward_ns=5_000_000)
            told.append(event)
        clocked.append((step, told))
    return clocked


def test_where_the_time_went() -> None:
    """b prefills in steps 0 and 3 (5 tokens, then 2 behind its hit), waits in 1, 2 and 2 ms before, decodes in 4."""
    timeline = read_steps(_with_clock(preempting()))
    assert time_shares(timeline, timeline.at(4), "b") == [
        TimeShare(state="waiting", num_steps=2, duration_ns=22_000_000, num_tokens=0),
        TimeShare(state="prefill", num_steps=2, duration_ns=20_000_000, num_tokens=7),
        TimeShare(state="decode", num_steps=1, duration_ns=6_000_000, num_tokens=1),
    ]


def test_without_a_clock_only_steps_are_known() -> None:
    timeline = read(preempting())
    assert time_shares(timeline, timeline.at(2), "b") == [
        TimeShare(state="waiting", num_steps=2, duration_ns=None, num_tokens=0),
        TimeShare(state="prefill", num_steps=1, duration_ns=None, num_tokens=5),
        TimeShare(state="decode", num_steps=0, duration_ns=0, num_tokens=0),
    ]
