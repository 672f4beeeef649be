"""Each event in words, and which sentence of its step tells of it."""

from __future__ import annotations

import pytest

from kvscope import events as ev
from kvscope.analysis.event_subjects import block_of, field_words, names_request, request_of, sentence_of
from kvscope.analysis.event_words import event_sentence
from kvscope.analysis.sentences import sentences
from tests.analysis.reading import read, read_steps
from tests.analysis.runs import preempting, sharing
from tests.builders import CheckedRun
from tests.recording.runs import BUSY_RUNS, golden_steps

WORDS: list[tuple[ev.Event, str]] = [
    (
        ev.RequestArrived(
            request_id="a", prompt_token_ids=(1, 2), max_tokens=9, arrival_time=0.0, queue_position=1, priority=3
        ),
        "↓ a arrived with 2 prompt tokens, up to 9 to generate, place 2 in the waiting queue, priority 3",
    ),
    (
        ev.RequestRejected(request_id="a", reason="max_model_len", have=9, limit=8, message="too\nlong"),
        "✗ a rejected: 9 > 8 (max_model_len); too⏎long",
    ),
    (
        ev.RequestAborted(request_id="a", status="RUNNING", during_execution=True),
        "× a aborted while it ran, in the middle of the step",
    ),
    (ev.StepStarted(step=1, token_budget=64), "· schedule() began with a budget of 64 tokens"),
    (
        ev.PrefixLookedUp(request_id="a", num_hit_tokens=0, block_ids=(), num_free_hit_blocks=0),
        "· a looked up in the prefix cache: nothing found",
    ),
    (
        ev.PrefixLookedUp(request_id="a", num_hit_tokens=12, block_ids=(7, 8, 9), num_free_hit_blocks=2),
        "· a looked up in the prefix cache: 12 tokens in 3 blocks, 2 of them free: 7–9",
    ),
    (
        ev.AllocationFailed(
            request_id="a",
            phase="running",
            reason="blocks",
            need_step=1,
            need_full=9,
            num_free_blocks=0,
            watermark_blocks=0,
            num_tokens=1,
        ),
        "✗ a got no blocks for 1 token while it ran: needs 1 > 0 free (blocks)",
    ),
    (
        ev.AllocationFailed(
            request_id="a",
            phase="waiting",
            reason="full_isl_watermark",
            need_step=1,
            need_full=9,
            num_free_blocks=9,
            watermark_blocks=2,
        ),
        "✗ a got no blocks at the head of the waiting queue: needs 9+2 > 9 free (full_isl_watermark)",
    ),
    (
        ev.RequestBlocked(request_id="a", reason="max_num_seqs", need=9, have=8),
        "✗ a not admitted: seqs 8/8 (max_num_seqs)",
    ),
    (
        ev.AdmissionEnded(reason="max_num_seqs", num_waiting=3, token_budget_left=1),
        "= admission ended (max_num_seqs): 3 wait, 1 token of the budget left",
    ),
    (
        ev.PrefixCacheHit(request_id="a", num_hit_tokens=8, num_own_hit_tokens=4, block_ids=(1, 5)),
        "● a hits 8 tokens (4 its own) in 2 blocks: 1 5",
    ),
    (
        ev.RequestAdmitted(request_id="a", num_tokens=9, num_hit_tokens=8, num_scheduled_tokens=1),
        "● a admitted: 8 of its 9 tokens hit, 1 scheduled",
    ),
    (
        ev.RequestResumed(request_id="a", num_tokens=9, num_hit_tokens=0, num_scheduled_tokens=9),
        "→ a resumed: 0 of its 9 tokens hit, 9 scheduled",
    ),
    (
        ev.RequestPreempted(
            request_id="a",
            beneficiary_id="b",
            num_freed_blocks=1,
            num_table_blocks=2,
            num_lost_tokens=7,
            num_returned_tokens=0,
            queue_position=0,
        ),
        "▲ a preempted for b: frees 1 of 2 blocks, 7 tokens lost, back to place 1 of the waiting queue",
    ),
    (ev.BlockAllocated(request_id="a", block_ids=(4, 9)), "+ a took 2 blocks from the head of the free queue: 4 9"),
    (
        ev.BlockTouched(request_id="a", block_ids=(1, 2), ref_cnts=(1, 2)),
        "● a now holds 2 cached blocks (1 out of the free queue): 1 2",
    ),
    (
        ev.BlockReleased(request_id="a", freed_to_head=(4,), freed_to_tail=(3, 2), still_held=(1,)),
        "− a gave back 4 blocks; 1 to the head of the free queue: 4; 2 to its tail: 3 2; 1 still held by others: 1",
    ),
    (
        ev.BlockCached(request_id="a", first_index=1, block_ids=(4, 5), block_hashes=(1, 2), duplicate_of=(0, 3)),
        "░ 2 full blocks of a published for prefix hits: 4 5, 5 doubles 3",
    ),
    (
        ev.BlockEvicted(request_id="a", block_ids=(4,), block_hashes=(1,)),
        "◆ 1 cached block evicted for a: 4",
    ),
    (
        ev.BlockUncached(request_id="a", block_ids=(4,), reason="preempted"),
        "░ 1 block of a taken back from the prefix cache (preempted): 4",
    ),
    (
        ev.TokensScheduled(request_ids=tuple("abcdefghij"), num_tokens=(5, *(1,) * 9)),
        "▓ 14 tokens scheduled for 10 requests: a 5 · b 1 · c 1 · d 1 · e 1 · f 1 · g 1 · h 1 · 2 more requests",
    ),
    (
        ev.TokensSampled(request_ids=("a", "b"), token_ids=(1, 2, 3), num_tokens=(2, 1)),
        "━ 3 tokens generated: a 2 · b 1",
    ),
    (ev.DraftsProposed(request_id="a", draft_token_ids=(1, 2)), "≈ 2 drafts proposed for a"),
    (
        ev.DraftsVerified(request_id="a", num_drafts=3, num_accepted=1, num_rolled_back=2),
        "≈ 1 of 3 drafts of a accepted, 2 rolled back",
    ),
    (
        ev.RequestFinished(request_id="a", reason="stop", num_output_tokens=1, stop="\x1b"),
        "✓ a finished (stop: ␛) with 1 token",
    ),
    (
        ev.StepFinished(schedule_ns=600_000, forward_ns=7_500_000),
        "· the step is complete: schedule 0.6 ms, forward 7.5 ms, sample 0.0 ms, update 0.0 ms",
    ),
    (
        ev.StepFailed(phase="forward", error_type="RuntimeError", message="out [0]"),
        "✖ the step failed in forward: RuntimeError: out [0]",
    ),
]


@pytest.mark.parametrize(("event", "words"), WORDS, ids=[type(event).__name__ for event, _ in WORDS])
def test_an_event_in_words(event: ev.Event, words: str) -> None:
    assert str(event_sentence(event)) == words


@pytest.mark.parametrize("name", BUSY_RUNS)
def test_every_event_of_busy_runs_has_words_and_its_sentence_names_its_request(name: str) -> None:
    timeline = read_steps(golden_steps(name))
    for step in range(timeline.last_step + 1):
        moment = timeline.at(step)
        said = sentences(timeline, moment)
        for event in moment.events:
            assert event_sentence(event).text
            told = sentence_of(said, event)
            if isinstance(event, ev.RequestPreempted | ev.RequestFinished | ev.RequestAborted | ev.RequestArrived):
                assert told is not None
                assert said[told].entities[0].key == event.request_id


def told(run: CheckedRun, step: int) -> list[tuple[str, str | None]]:
    """Returns the kind of each event of a step, and the glyph of the sentence that tells of it."""
    timeline = read(run)
    moment = timeline.at(step)
    said = sentences(timeline, moment)
    places = [(event, sentence_of(said, event)) for event in moment.events]
    return [(type(event).__name__, None if place is None else str(said[place])[:12]) for event, place in places]


def test_the_events_of_a_preemption_belong_to_its_sentences() -> None:
    assert told(preempting(), 1) == [
        ("RequestArrived", "↓ c arrived "),
        ("StepStarted", None),
        ("AllocationFailed", "▲ b preempte"),
        ("RequestPreempted", "▲ b preempte"),
        ("BlockReleased", "▲ b preempte"),
        ("BlockAllocated", "+ 1 block ta"),
        ("RequestBlocked", "✗ Nobody adm"),
        ("AdmissionEnded", "= 15 of 16 t"),
        ("TokensScheduled", None),
        ("TokensSampled", None),
        ("StepFinished", None),
    ]


def test_the_events_of_a_hit_belong_to_the_admission() -> None:
    found = dict(told(sharing(), 1))
    assert [found[kind] for kind in ("PrefixLookedUp", "BlockTouched", "PrefixCacheHit", "RequestAdmitted")] == [
        "● b admitted"
    ] * 4


def test_what_is_taken_back_is_told_apart_from_what_is_published() -> None:
    run = preempting()
    step, events = run.sink.steps[0]
    back = ev.BlockUncached(request_id="a", block_ids=(1,), reason="step_failed")
    timeline = read_steps([(step, [*events, back])])
    moment = timeline.at(0)
    said = sentences(timeline, moment)
    published = next(event for event in moment.events if isinstance(event, ev.BlockCached))
    places = sentence_of(said, back), sentence_of(said, published)
    assert [said[place].text[:16] for place in places if place is not None] == ["1 block of a tak", "2 full blocks pu"]


def test_what_an_event_is_about() -> None:
    released = ev.BlockReleased(request_id="a", freed_to_head=(), freed_to_tail=(3, 2), still_held=(1,))
    batch = ev.TokensSampled(request_ids=("x", "y"), token_ids=(1, 2))
    clock = ev.StepFinished()
    assert [request_of(event) for event in (released, batch, clock)] == ["a", "x", None]
    assert [block_of(event) for event in (released, batch, clock)] == [3, None, None]
    assert [names_request(event, "y") for event in (released, batch, clock)] == [False, True, False]
    preempted = next(event for event, _ in WORDS if isinstance(event, ev.RequestPreempted))
    assert [names_request(preempted, name) for name in "abc"] == [True, True, False]


def test_its_fields_are_shown_as_they_were_recorded() -> None:
    event = ev.RequestFinished(request_id="a\x1b", reason="stop", num_output_tokens=3)
    assert field_words(event) == [
        ("request_id", "a␛"),
        ("reason", "stop"),
        ("num_output_tokens", "3"),
        ("stop", "null"),
    ]
    long = ev.BlockAllocated(request_id="a", block_ids=tuple(range(30)))
    assert field_words(long)[1][1] == f"[{','.join(map(str, range(24)))},… 30 in all]"
