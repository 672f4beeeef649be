"""The rules as functions: by worked values, and against what the scheduler decided."""

from __future__ import annotations

import hashlib
import struct

import pytest

from kvscope import events as ev
from kvscope.engine.scheduling import hashing, rules
from kvscope.engine.scheduling.rules import Verdict
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.engine.scheduling.token_plan import PlannedRequest, unified_token_plan
from kvscope.state import EngineState
from tests.builders import CheckedRun, scenario
from tests.golden import golden_names, golden_runs


def test_a_hash_covers_parent_tokens_and_in_the_first_block_the_extra_keys() -> None:
    def digest(data: bytes) -> bytes:
        return hashlib.sha256(data).digest()[:16]

    tokens = [1, 2, 70000, 4, 5, 6, 7]
    first = digest(bytes(16) + struct.pack("<3I", 1, 2, 70000))
    assert hashing.block_hashes(tokens, 3) == [first, digest(first + struct.pack("<3I", 4, 5, 6))]
    salted = digest(bytes(16) + b"\x0a\0\0\0cache_salt\x02\0\0\0ab" + struct.pack("<3I", 1, 2, 70000))
    assert hashing.block_hashes(tokens, 3, hashing.extra_keys("ab")) == [
        salted,
        digest(salted + struct.pack("<3I", 4, 5, 6)),
    ]


def test_an_adapter_and_a_salt_of_one_name_do_not_meet() -> None:
    assert hashing.extra_keys(None, "fr") == ("lora", "fr")
    assert hashing.extra_keys("fr", "fr") == ("lora", "fr", "cache_salt", "fr")
    keys = [(None, None), ("fr", None), (None, "fr"), ("fr", "fr"), ("lora", None), (None, "cache_salt")]
    assert len({hashing.block_hashes([1], 1, hashing.extra_keys(*pair))[0] for pair in keys}) == len(keys)


def test_extra_keys_that_read_the_same_in_a_row_hash_differently() -> None:
    assert hashing.block_hashes([1], 1, ("ab", "c")) != hashing.block_hashes([1], 1, ("a", "bc"))


def test_hashes_can_be_extended_block_by_block() -> None:
    tokens = list(range(20))
    hashes = hashing.block_hashes(tokens[:9], 4)
    hashing.extend_block_hashes(hashes, tokens, 5, 4)
    assert hashes == hashing.block_hashes(tokens, 4)


def test_the_short_hash_is_the_first_eight_bytes() -> None:
    assert hashing.short_hash(bytes([255] * 8 + [1] * 8)) == 2**64 - 1
    hashes = [bytes([255] * 8 + [1] * 8), bytes([0, 1, 2, 3, 4, 5, 6, 7] + [9] * 8)]
    assert hashing.short_hashes(hashes) == (2**64 - 1, 0x01020304050607)
    assert hashing.short_hashes([]) == ()


@pytest.mark.parametrize(
    ("num_tokens", "num_table", "num_hits", "num_free_hits", "expected"),
    [
        (17, 0, 0, 0, 5),  # 4 full blocks and a token
        (17, 5, 0, 0, 0),
        (17, 7, 0, 0, 0),  # rejected drafts left more than are needed
        (17, 0, 3, 0, 2),  # hits in use cost nothing
        (17, 0, 3, 2, 4),  # two of them lie in the free queue
    ],
)
def test_blocks_needed_at_block_size_4(
    num_tokens: int, num_table: int, num_hits: int, num_free_hits: int, expected: int
) -> None:
    assert rules.blocks_needed(num_tokens, 4, num_table, num_hits, num_free_hits) == expected


@pytest.mark.parametrize(
    ("need_step", "need_full", "watermark", "must_full_fit", "reason"),
    [
        (5, 9, 0, True, None),
        (5, 10, 0, True, "full_isl"),
        (5, 8, 2, True, "full_isl_watermark"),
        (10, 8, 0, True, "blocks"),  # with lookahead a step may need more than all its tokens
        (8, 7, 2, True, "watermark"),
        (9, 99, 0, False, None),
        (10, 99, 0, False, "blocks"),
        (8, 99, 2, False, "watermark"),
    ],
)
def test_the_two_tests_of_an_allocation_with_9_blocks_free(
    need_step: int, need_full: int, watermark: int, must_full_fit: bool, reason: str | None
) -> None:
    shortage = rules.allocation_shortage(
        need_step=need_step,
        need_full=need_full,
        must_full_fit=must_full_fit,
        watermark_blocks=watermark,
        num_free_blocks=9,
    )
    assert (shortage.reason if shortage is not None else None) == reason


def test_the_budget_of_a_step_is_the_lower_of_two_settings() -> None:
    """Of vLLM's two budgets the one for batched tokens holds for scheduled ones too; here more was scheduled."""
    for scheduled, expected, setting in (
        (None, 8, "max_num_batched_tokens"),
        (5, 5, "max_num_scheduled_tokens"),
        (8, 8, "max_num_batched_tokens"),
        (20, 8, "max_num_batched_tokens"),
    ):
        built = scenario(budget=8, max_num_scheduled_tokens=scheduled).request("a", "p" * 30)
        run = built.start()
        run.run_step()
        assert run.dump()[0]["num_scheduled_tokens"] == {"a": expected}
        assert run.scheduler.config.token_budget_setting == setting


REQUESTS: list[PlannedRequest] = [
    {"id": "prefill", "status": "waiting", "computed": 0, "total_with_spec": 7},
    {"id": "decode_or_spec", "status": "running", "computed": 6, "total_with_spec": 10},
]


def test_the_lessons_plan() -> None:
    assert unified_token_plan(REQUESTS, 8) == ({"decode_or_spec": 4, "prefill": 4}, 0)
    assert unified_token_plan(REQUESTS, 20) == ({"decode_or_spec": 4, "prefill": 7}, 9)
    assert unified_token_plan(REQUESTS, 3) == ({"decode_or_spec": 3}, 0)


def test_a_request_without_a_gap_takes_no_budget() -> None:
    done: PlannedRequest = {"id": "done", "status": "running", "computed": 5, "total_with_spec": 5}
    assert unified_token_plan([done, *REQUESTS], 8) == ({"decode_or_spec": 4, "prefill": 4}, 0)


def test_the_lessons_two_errors() -> None:
    with pytest.raises(ValueError, match="negative token budget"):
        unified_token_plan(REQUESTS, -1)
    with pytest.raises(ValueError, match="invalid request counters"):
        unified_token_plan([{"id": "a", "status": "running", "computed": 3, "total_with_spec": 2}], 8)
    with pytest.raises(ValueError, match="invalid request counters"):
        unified_token_plan([{"id": "a", "status": "waiting", "computed": -1, "total_with_spec": 2}], 8)


@pytest.mark.parametrize(("kind", "name"), golden_names())
def test_the_whole_verdict_is_the_one_that_the_scheduler_reached_step_by_step(kind: str, name: str) -> None:
    """For each step's head of the queue: the pure function, from recorded figures alone, names the recorded test."""
    run = CheckedRun(parse_scenario(golden_runs(kind)[name]))
    state = EngineState()
    while not run.is_done and run.next_step < run.scenario.max_steps:
        prefilling = {r.request_id for r in run.scheduler.running if r.is_prefill_chunk}
        run.run_step()
        assert _verdicts(run, state, prefilling) == [
            Verdict(event.reason, event.need, event.have, event.watermark_blocks)
            for event in run.events(state.step, ev.RequestBlocked)
            if event.reason != "preempted"
        ]


def _verdicts(run: CheckedRun, state: EngineState, prefilling: set[str]) -> list[Verdict | None]:
    """Folds the run's last step into `state` and judges the head of the queue where the waiting loop ended."""
    step, events = run.sink.steps[-1]
    state.begin_step(step)
    verdicts: list[Verdict | None] = []
    admitted, lookups, num_requests = set(), {}, 0
    for event in events:
        state.apply(event)
        match event:
            case ev.StepStarted():
                num_requests = len(state.running) + len(state.waiting)
            case ev.PrefixLookedUp():
                lookups[event.request_id] = event
            case ev.RequestAdmitted() | ev.RequestResumed():
                admitted.add(event.request_id)
            case ev.AdmissionEnded() if event.reason != "preempted" and state.waiting:
                (scheduled,) = (e for e in events if isinstance(e, ev.TokensScheduled))
                running = [request_id for request_id in scheduled.request_ids if request_id not in admitted]
                head = state.waiting[0]
                lookup = lookups.get(head)
                verdicts.append(
                    rules.admission_verdict(
                        run.scenario.config,
                        token_budget=event.token_budget_left,
                        num_running=len(state.running),
                        num_requests=num_requests,
                        num_tokens=state.requests[head].num_tokens,
                        num_hit_blocks=len(lookup.block_ids) if lookup else 0,
                        num_free_hit_blocks=lookup.num_free_hit_blocks if lookup else 0,
                        num_free_blocks=state.num_free_blocks,
                        has_scheduled_running=bool(running),
                        has_scheduled_prefill=any(request_id in prefilling for request_id in running),
                    )
                )
            case _:
                pass
    return verdicts
