"""Each invariant, broken once: a run's events are tampered with, and the fault is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from kvscope import events as ev
from kvscope.analysis.check import Violation, check_events
from kvscope.analysis.invariants import INVARIANTS
from tests.builders import scenario

Steps = list[tuple[int, list[ev.Event]]]
Tamper = Callable[[Steps], None]
E = TypeVar("E", bound=msgspec.Struct)


def steps_with_hits() -> Steps:
    """a and b share a prefix of two blocks; c evicts what they leave."""
    built = scenario(blocks=9, max_model_len=64, scheduler_reserve_full_isl=False, budget=32, seqs=3)
    built.request("a", "systemm.aaaaa", reply="12345678", at=0)
    built.request("b", "systemm.bbbbbbbb", reply="1234", at=1).request("c", "c" * 18, at=3, reply="12")
    return [(step, list(events)) for step, events in built.run().sink.steps]


def steps_with_a_preemption() -> Steps:
    """b gives its blocks to a and resumes on what is left of them; c is admitted behind it."""
    built = scenario(blocks=9).request("a", "a" * 15, reply="12345678").request("b", "b" * 16, reply="12")
    return [(step, list(events)) for step, events in built.request("c", "cc", at=1).run().sink.steps]


def steps_with_drafts() -> Steps:
    built = scenario(num_spec_tokens=3)
    run = built.request("s", "speculate", reply="abcdefgh", drafts=["bcx", "efg"]).run()
    return [(step, list(events)) for step, events in run.sink.steps]


def steps_of_a_decode() -> Steps:
    """A prompt of exactly one block: its first token of output needs a second one."""
    return [(step, list(events)) for step, events in scenario().request("d", "four", reply="abc").run().sink.steps]


def find(steps: Steps, kind: type[E], nth: int = 0, **fields: Any) -> tuple[list[ev.Event], int, E]:
    """Returns the nth event of a kind with such fields, its step's list and its place there."""
    for _, events in steps:
        for index, event in enumerate(events):
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items()):
                if nth == 0:
                    return events, index, event
                nth -= 1
    raise AssertionError(f"the run has no {kind.__name__} with {fields}")


def change(steps: Steps, kind: type[Any], changes: dict[str, Any], nth: int = 0, **fields: Any) -> None:
    """Replaces fields of an event; a callable gets the old value."""
    events, index, event = find(steps, kind, nth, **fields)
    new = {name: value(getattr(event, name)) if callable(value) else value for name, value in changes.items()}
    events[index] = msgspec.structs.replace(event, **new)


def remove(steps: Steps, kind: type[Any], **fields: Any) -> None:
    events, index, _ = find(steps, kind, **fields)
    del events[index]


def found(steps: Steps) -> list[Violation]:
    return list(check_events(steps))


def test_the_runs_are_sound_before_anybody_tampers() -> None:
    for run in (steps_with_hits, steps_with_a_preemption, steps_with_drafts, steps_of_a_decode):
        assert found(run()) == []


def swap(pair: Sequence[int]) -> tuple[int, ...]:
    return (pair[1], pair[0], *pair[2:])


def plus_one(numbers: Sequence[int]) -> tuple[int, ...]:
    return (numbers[0] + 1, *numbers[1:])


def give_the_null_block(steps: Steps) -> None:
    change(steps, ev.BlockAllocated, {"block_ids": lambda ids: (0, *ids[1:])})


def take_blocks_out_of_order(steps: Steps) -> None:
    change(steps, ev.BlockAllocated, {"block_ids": swap})


def forget_an_eviction(steps: Steps) -> None:
    remove(steps, ev.BlockEvicted)


def free_in_forward_order(steps: Steps) -> None:
    change(steps, ev.BlockReleased, {"freed_to_tail": lambda ids: tuple(reversed(ids))}, request_id="a")


def lose_a_block(steps: Steps) -> None:
    events, index, event = find(steps, ev.BlockReleased, request_id="a")
    tail = event.freed_to_tail
    events[index] = msgspec.structs.replace(event, freed_to_tail=tail[1:], still_held=tail[:1])


def count_another_block_down(steps: Steps) -> None:
    """The second of two releases names a block that the request never held."""
    events, index, event = find(steps, ev.BlockReleased, request_id="b")
    assert event.still_held
    events[index] = msgspec.structs.replace(event, still_held=(3, *event.still_held[1:]))


def claim_a_longer_hit(steps: Steps) -> None:
    change(steps, ev.PrefixCacheHit, {"num_hit_tokens": 12})


def salt_the_second_request(steps: Steps) -> None:
    change(steps, ev.RequestArrived, {"cache_salt": "tenant"}, request_id="b")


def flip_a_bit_of_a_hash(steps: Steps) -> None:
    change(steps, ev.BlockCached, {"block_hashes": lambda hashes: (hashes[0] ^ 1, *hashes[1:])})


def evict_another_hash(steps: Steps) -> None:
    change(steps, ev.BlockEvicted, {"block_hashes": lambda hashes: (hashes[0] ^ 1, *hashes[1:])})


def compute_less_than_was_published(steps: Steps) -> None:
    change(steps, ev.TokensScheduled, {"num_tokens": (3,)})


def fail_a_load_of_a_published_block(steps: Steps) -> None:
    events, index, event = find(steps, ev.BlockCached)
    load = ev.KVTransferFinished(request_id="a", direction="load", failed_block_ids=event.block_ids[:1])
    events.insert(index + 1, load)


def schedule_beyond_the_budget(steps: Steps) -> None:
    change(steps, ev.StepStarted, {"token_budget": 12})


def schedule_one_who_waits(steps: Steps) -> None:
    change(steps, ev.TokensScheduled, {"request_ids": ("c",)}, nth=3, request_ids=("a",))


def admit_after_a_preemption(steps: Steps) -> None:
    """b is written to be preempted right before c is admitted."""
    events, index, _ = find(steps, ev.PrefixLookedUp, request_id="c")
    _, _, preempted = find(steps, ev.RequestPreempted)
    events.insert(index, msgspec.structs.replace(preempted, queue_position=1))


def let_somebody_push_in(steps: Steps) -> None:
    events, index, arrived = find(steps, ev.RequestArrived, request_id="c")
    events.insert(index + 1, msgspec.structs.replace(arrived, request_id="first in line"))


def allow_one_sequence(steps: Steps) -> None:
    change(steps, ev.EngineConfigured, {"settings": lambda settings: {**settings, "max_num_seqs": 1}})


def refuse_what_would_fit(steps: Steps) -> None:
    change(steps, ev.AllocationFailed, {"num_free_blocks": 8})


def roll_back_too_little(steps: Steps) -> None:
    change(steps, ev.DraftsVerified, {"num_rolled_back": 0})


def count_an_accepted_draft_twice(steps: Steps) -> None:
    change(steps, ev.DraftsVerified, {"num_accepted": 3})


def sample_in_the_middle_of_a_prompt(steps: Steps) -> None:
    change(steps, ev.TokensScheduled, {"num_tokens": lambda counts: (counts[0] - 1,)})


def sample_tokens_that_nobody_wrote_down(steps: Steps) -> None:
    change(steps, ev.TokensSampled, {"num_tokens": (2,)})


def miscount_the_output(steps: Steps) -> None:
    change(steps, ev.RequestFinished, {"num_output_tokens": lambda count: count - 1})


def keep_the_blocks_of_the_finished(steps: Steps) -> None:
    remove(steps, ev.BlockReleased, request_id="a")


def forget_an_allocation(steps: Steps) -> None:
    events, index, _ = find(steps, ev.BlockAllocated, nth=1)
    del events[index]


BREAKS: dict[str, Tamper] = {
    "null_block_is_never_handed_out": give_the_null_block,
    "blocks_come_from_the_head_of_the_free_queue": take_blocks_out_of_order,
    "allocated_blocks_have_no_hash": forget_an_eviction,
    "release_keeps_the_order": free_in_forward_order,
    "blocks_are_free_or_referenced": lose_a_block,
    "reference_counts_match_the_tables": count_another_block_down,
    "hits_are_whole_blocks_and_leave_a_token": claim_a_longer_hit,
    "hit_blocks_hold_the_requests_tokens": salt_the_second_request,
    "hash_chain_is_right": flip_a_bit_of_a_hash,
    "evicted_blocks_are_free_and_cached": evict_another_hash,
    "published_blocks_are_computed": compute_less_than_was_published,
    "failed_loads_are_not_published": fail_a_load_of_a_published_block,
    "scheduled_tokens_fit_the_budget": schedule_beyond_the_budget,
    "only_running_requests_are_scheduled": schedule_one_who_waits,
    "only_the_head_is_admitted": let_somebody_push_in,
    "running_is_at_most_max_num_seqs": allow_one_sequence,
    "failed_allocations_had_too_few_blocks": refuse_what_would_fit,
    "finished_requests_count_their_tokens": miscount_the_output,
    "ended_requests_own_nothing": keep_the_blocks_of_the_finished,
    "only_complete_requests_sample": sample_in_the_middle_of_a_prompt,
    "tokens_are_prompt_and_sampled": sample_tokens_that_nobody_wrote_down,
}
BREAKS_OF_PREEMPTION: dict[str, Tamper] = {
    "preempting_steps_admit_nobody": admit_after_a_preemption,
}
BREAKS_OF_A_DECODE: dict[str, Tamper] = {
    "block_tables_hold_the_computed_tokens": forget_an_allocation,
}
BREAKS_OF_DRAFTS: dict[str, Tamper] = {
    "computed_tokens_exist": roll_back_too_little,
    "drafts_are_accepted_or_rolled_back": count_an_accepted_draft_twice,
}


ALL_BREAKS = [
    (run, name, tamper)
    for run, breaks in (
        (steps_with_hits, BREAKS),
        (steps_with_a_preemption, BREAKS_OF_PREEMPTION),
        (steps_of_a_decode, BREAKS_OF_A_DECODE),
        (steps_with_drafts, BREAKS_OF_DRAFTS),
    )
    for name, tamper in breaks.items()
]


def test_every_invariant_is_broken_here_once() -> None:
    assert sorted(name for _, name, _ in ALL_BREAKS) == sorted(invariant.name for invariant in INVARIANTS)


@pytest.mark.parametrize(("run", "name", "tamper"), ALL_BREAKS, ids=[name for _, name, _ in ALL_BREAKS])
def test_a_broken_invariant_is_named(run: Callable[[], Steps], name: str, tamper: Tamper) -> None:
    steps = run()
    tamper(steps)
    assert name in {violation.check for violation in found(steps)}


def test_a_violation_has_its_step_event_and_figures() -> None:
    steps = steps_with_hits()
    schedule_beyond_the_budget(steps)
    assert found(steps)[0] == Violation(
        check="scheduled_tokens_fit_the_budget",
        step=0,
        event="TokensScheduled (event 8)",
        message="13 tokens are scheduled on a budget of 12",
    )


def test_a_failed_load_that_stays_published_is_a_warning() -> None:
    steps = steps_with_hits()
    fail_a_load_of_a_published_block(steps)
    (warning,) = found(steps)
    assert (warning.check, warning.is_warning) == ("failed_loads_are_not_published", True)


def test_after_an_event_that_cannot_be_true_nothing_more_is_said() -> None:
    steps = steps_with_hits()
    remove(steps, ev.RequestAdmitted)
    violations = found(steps)
    assert violations[-1].check == "events_fit_the_state"
    assert "TokensSampled" not in {violation.event for violation in violations if violation.step > violations[-1].step}
