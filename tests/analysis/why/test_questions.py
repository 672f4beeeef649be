"""A small scenario for each question that people bring (speculation, connectors and adapters left out).

Asserted are figures of `kvscope why --json`; that they are right follows from the scenario, which is small enough to be
worked out by hand. The questions that `tests/cases` answers by vLLM's own runs are not repeated here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kvscope import events as ev
from kvscope.analysis.detectors import find_all
from kvscope.analysis.why import WhyAnswer, explain, overview
from kvscope.analysis.why.layout import as_text
from kvscope.analysis.why.report import report
from kvscope.cli.why import as_json, run_as_json
from kvscope.errors import UsageError
from kvscope.replay import MemoryTimeline
from tests.analysis.reading import read, read_steps
from tests.analysis.runs import preempting
from tests.builders import CheckedRun, scenario

Json = dict[str, Any]


def why(run: CheckedRun, request_id: str, step: int | None = None) -> Json:
    found: Json = json.loads(as_json(explain(read(run), request_id, step)))
    return found


def whole_run(timeline: MemoryTimeline) -> Json:
    found: Json = json.loads(run_as_json(overview(timeline), find_all(timeline)))
    return found


def _change(answer: Json, setting: str) -> Any:
    (change,) = (change for change in answer["waiting"]["instant"]["changes"] if change["setting"] == setting)
    return change["value"]


# --- which test fails for the head of the queue at step N, with which figures? (vllm #53130) --------------------------


def test_every_sequence_is_taken_while_the_pool_is_nearly_empty() -> None:
    run = (
        scenario(blocks=64, block_size=4, seqs=2)
        .request("a", "aaaa", reply="x" * 9)
        .request("b", "bbbb", reply="x" * 9)
        .request("head", "hhhhhh", reply="x", at=1)
        .run()
    )
    answer = why(run, "head", 5)
    tests = {test["name"]: test for test in answer["waiting"]["instant"]["tests"]}
    assert [test["name"] for test in tests.values() if test["was_reached"] and not test["passed"]] == ["sequence_free"]
    assert (tests["sequence_free"]["need"], tests["sequence_free"]["have"]) == (3, 2)
    assert not tests["all_tokens_fit"]["was_reached"]
    # 63 usable blocks; a and b have 4 + 6 sampled tokens at step 5, of which 9 are computed: 3 blocks each.
    assert (tests["all_tokens_fit"]["need"], tests["all_tokens_fit"]["have"]) == (2, 57)
    assert _change(answer, "max_num_seqs") == 3
    assert _change(answer, "num_gpu_blocks") is None
    assert _change(answer, "max_num_batched_tokens") is None


def test_what_goes_on_is_told_as_far_as_it_was_read() -> None:
    """A recording that still grows has no end; what is on a screen may be older than what was written since."""
    run = scenario(seqs=1).request("a", "aaaa", reply="x" * 9).request("b", "bbbb", reply="x", at=1).run(4)
    lines = " ".join(as_text(report(explain(read(run), "b"))).split())
    assert "; still there at step 3, the last that was read" in lines
    assert "; it still waits at the last step that was read" in lines


def test_the_budget_is_used_up_by_a_running_prefill() -> None:
    run = (
        scenario(blocks=64, block_size=4, budget=8)
        .request("long", "l" * 20, reply="x")
        .request("head", "hhh", reply="x", at=1)
        .run()
    )
    answer = why(run, "head")  # long computes 8, 8, 4
    (wait,) = answer["waiting"]["waits"]
    assert [(row["step"], row["stop"], row["scheduled_tokens"]) for row in wait["steps"]] == [
        (1, "budget", {"long": 8})
    ]
    assert wait["let_in_by"]["token_budget_left"] == 4
    assert _change(answer, "max_num_batched_tokens") == 13  # at step 1 long would take 12 of them
    assert _change(answer, "long_prefill_token_threshold") == 7


def test_a_prompt_that_may_not_be_cut() -> None:
    run = (
        scenario(blocks=64, block_size=4, budget=32, max_model_len=32, enable_chunked_prefill=False)
        .request("a", "a" * 20, reply="xx")
        .request("head", "h" * 20, reply="x")
        .run()
    )
    answer = why(run, "head")
    (wait,) = answer["waiting"]["waits"]
    (stretch,) = wait["stretches"]
    assert (stretch["reason"], stretch["need"], stretch["have"]) == ("chunked_prefill_off", [20, 20], [12, 12])
    assert _change(answer, "max_num_batched_tokens") == 40
    assert _change(answer, "enable_chunked_prefill") is True
    assert _change(answer, "long_prefill_token_threshold") == 16  # both of them


# --- who holds what the head waits for? (vllm #45388) -----------------------------------------------------------------


def test_half_computed_requests_hold_the_blocks_that_the_head_needs() -> None:
    """Each looked at the free blocks of its own step only: together they over-commit the pool."""
    run = (
        scenario(blocks=13, block_size=4, budget=12, long_prefill_token_threshold=4)
        .request("a", "a" * 24, reply="xxx")
        .request("b", "b" * 24, reply="xxx")
        .request("head", "h" * 20, at=3)
        .run()
    )
    answer = why(run, "head", 3)
    holders = {row["request_id"]: row for row in answer["waiting"]["instant"]["held_by"]}
    assert holders["a"] == {
        "request_id": "a",
        "held_blocks": 4,
        "frees_if_it_ends": 4,
        "is_enough": True,
        "tokens_to_its_end_at_most": 3,
        "prefill_tokens_left": 8,
        "ended_in_this_step": False,
        "priority": 0,
    }
    assert holders["b"] == holders["a"] | {"request_id": "b"}
    row = answer["waiting"]["waits"][0]["steps"][0]
    assert (row["step"], row["need"], row["free"], row["missing"], row["held_by"]) == (3, 5, 4, 1, {"a": 4, "b": 4})


def test_a_shared_block_is_not_freed_by_one_holder() -> None:
    run = (
        scenario(blocks=11, block_size=4)
        .request("a", "ssssssss" + "aaaa", reply="x" * 6)
        .request("b", "ssssssss" + "bbbb", reply="x" * 6)
        .request("head", "h" * 24, reply="x", at=1)
        .run()
    )
    holders = {row["request_id"]: row for row in why(run, "head", 2)["waiting"]["instant"]["held_by"]}
    # 12 prompt tokens and 3 sampled, 2 of them computed: 4 blocks each, the first two held by both.
    assert [(row["held_blocks"], row["frees_if_it_ends"]) for row in holders.values()] == [(4, 2), (4, 2)]
    assert [row["is_enough"] for row in holders.values()] == [True, True]  # 4 free + 2 for a need of 6


# --- who of lower priority runs while X waits, and starvation (vllm #40004) -------------------------------------------


def test_an_urgent_stream_starves_a_request() -> None:
    builder = scenario(blocks=32, block_size=4, seqs=1, policy="priority").request("slow", "ssss", priority=9, at=1)
    for index in range(4):
        builder.request(f"u{index}", "uuuu", reply="xx", priority=0, at=index)
    run = builder.run()
    (wait,) = why(run, "slow")["waiting"]["waits"]
    assert (wait["since_step"], wait["waited_steps"], wait["ended_step"]) == (1, 7, 8)
    assert wait["overtaken_by"] == ["u2", "u3"]
    (starved,) = (row for row in whole_run(read(run))["findings"] if row["kind"] == "starvation")
    assert (starved["request_ids"], starved["num_steps"]) == (["slow", "u2", "u3"], 7)


# --- nothing shared, or at which token does X leave the chain, and why? (vllm #54607, #31920) -------------------------

CHAT = "system: be kind; user: hello"


def _admission(run: CheckedRun, request_id: str) -> Json:
    (admission,) = why(run, request_id)["missed"]["admissions"]
    assert isinstance(admission, dict)
    return admission


def test_a_system_prompt_that_changes_with_every_request() -> None:
    run = (
        scenario(blocks=64, block_size=4)
        .request("at 10:01", "time 10:01, be kind", reply="xx")
        .request("at 10:02", "time 10:02, be kind", reply="xx", at=3)
        .run()
    )
    admission = _admission(run, "at 10:02")
    assert (admission["hit_tokens"], admission["shared_tokens"], admission["reason"]) == (
        8,
        9,
        "rest_shorter_than_a_block",
    )
    assert admission["chain_leaves_at_block"] == 2
    assert admission["difference"] == {
        "other_id": "at 10:01",
        "token_position": 9,
        "block_index": 2,
        "position_in_block": 1,
        "token_id": ord("2"),
        "other_token_id": ord("1"),
        "text": "0:02, be ",
        "other_text": "0:01, be ",
        "alike_behind": len(", be kind"),
        "alike_blocks_behind": 2,
    }


def test_what_is_alike_behind_a_difference_is_found_where_it_stands_later() -> None:
    """One writes two letters where the other writes five; behind them 13 tokens are alike, then one differs again."""
    run = (
        scenario(blocks=64, block_size=4)
        .request("Ann", "to Ann: be kind to me.", reply="xx")
        .request("Bob", "to Robert: be kind to us.", reply="xx", at=3)
        .run()
    )
    difference = _admission(run, "Bob")["difference"]
    assert (difference["token_position"], difference["text"]) == (3, "to Robert")
    assert difference["alike_behind"] == len(": be kind to ")
    assert difference["alike_blocks_behind"] == 3


def test_a_long_text_that_is_alike_behind_a_difference_is_counted_whole() -> None:
    lines = "one line of many; " * 30
    made = scenario(blocks=512, budget=1024, max_model_len=1024).request("Ann", f"to Ann: {lines}", reply="x")
    difference = _admission(made.request("Bob", f"to Bob: {lines}", at=3).run(), "Bob")["difference"]
    assert difference["alike_behind"] == len(f": {lines}")


def test_the_second_round_of_a_chat_hits_all_that_was_computed_of_the_first() -> None:
    """The last sampled token is never computed, so its block is not there: not a fault of the cache."""
    run = (
        scenario(blocks=64, block_size=4)
        .request("round 1", CHAT, reply="hi there you")
        .request("round 2", CHAT + "hi there you" + " user: more", at=14)
        .run()
    )
    admission = _admission(run, "round 2")
    assert (admission["hit_tokens"], admission["shared_tokens"], admission["reason"]) == (36, 40, "never_computed")
    assert admission["publishers"] == ["round 1"] * 9


def test_a_cache_salt_keeps_tenants_apart() -> None:
    run = scenario(blocks=64).request("a", CHAT).request("b", CHAT, at=2, cache_salt="tenant b").run()
    admission = _admission(run, "b")
    assert (admission["hit_tokens"], admission["reason"]) == (0, "other_salt")
    assert (admission["other_salt_id"], admission["other_salt"]) == ("a", None)
    assert admission["matches"] == [
        {
            "request_id": "a",
            "shared_tokens": 28,
            "same_salt": False,
            "cache_salt": None,
            "same_adapter": True,
            "lora_name": None,
        },
    ]


def test_an_adapter_keeps_its_blocks_apart_also_from_a_salt_of_its_name() -> None:
    """b has a's text under the adapter `fr`, c under the salt `fr`, d as b: only d hits, and only b's blocks."""
    made = scenario(blocks=64).request("a", CHAT).request("b", CHAT, at=2, lora_name="fr")
    run = made.request("c", CHAT, at=4, cache_salt="fr").request("d", CHAT, at=6, lora_name="fr").run()
    keys = ("hit_tokens", "reason", "other_salt_id", "other_salt", "other_lora_name", "publishers")
    assert {name: tuple(_admission(run, name)[key] for key in keys) for name in "abcd"} == {
        "a": (0, "nothing_shared", None, None, None, []),
        "b": (0, "other_adapter", "a", None, None, []),
        "c": (0, "other_salt", "a", None, None, []),
        "d": (24, "last_token_must_be_computed", None, None, None, ["b"] * 6),
    }
    assert why(run, "d")["request"]["lora_name"] == "fr"


def test_a_prefix_that_was_evicted_to_make_room() -> None:
    run = (
        scenario(blocks=12, block_size=4)
        .request("first", "system: be kind; user: a", reply="xyz")
        .request("filler", "0123456789" * 4, reply="zz", at=4)
        .request("again", "system: be kind; user: b", reply="xyz", at=8)
        .run()
    )
    admission = _admission(run, "again")
    assert (admission["hit_tokens"], admission["shared_tokens"], admission["reason"]) == (0, 23, "evicted")
    assert admission["lost"] == {
        "block_index": 0,
        "block_id": 1,
        "computed_by": "first",
        "published_step": 0,
        "lost_step": 5,
        "lost_for": "filler",
    }


def test_a_prefix_that_is_still_being_computed() -> None:
    run = scenario(blocks=64, block_size=4, budget=12).request("first", CHAT).request("second", CHAT, at=1).run()
    answer = why(run, "second")
    assert answer["waiting"]["waits"][0]["waited_steps"] == 1  # first takes 12, 12, 4
    admission = answer["missed"]["admissions"][0]
    assert (admission["step"], admission["hit_tokens"], admission["reason"]) == (2, 24, "last_token_must_be_computed")
    run = scenario(blocks=64, block_size=4, budget=16).request("first", CHAT).request("second", CHAT, at=1).run()
    assert [(a["step"], a["hit_tokens"]) for a in why(run, "second")["missed"]["admissions"]] == [(1, 24)]


def test_without_prefix_caching_nothing_is_looked_up() -> None:
    run = scenario(enable_prefix_caching=False).request("a", CHAT).request("b", CHAT, at=2).run()
    admission = _admission(run, "b")
    assert (admission["hit_tokens"], admission["reason"], admission["publishers"]) == (0, "caching_off", [])


# --- do the stored tokens and extra keys of a hit equal the request's? (vllm #44701) ----------------------------------


def test_a_hit_across_two_tenants_is_seen() -> None:
    """The recording of an engine that left the salt out of its hashes."""
    run = scenario(blocks=64).request("a", CHAT).request("b", CHAT, at=2).run()
    tampered = [
        (
            step,
            [
                msgspec.structs.replace(event, cache_salt="tenant b")
                if isinstance(event, ev.RequestArrived) and event.request_id == "b"
                else event
                for event in events
            ],
        )
        for step, events in run.sink.steps
    ]
    honest, mixed = read(run), read_steps(tampered)
    of_honest, of_mixed = explain(honest, "b").missed, explain(mixed, "b").missed
    assert of_honest is not None
    assert of_mixed is not None
    assert [a.hits_hold_its_tokens for a in of_honest.admissions] == [True]
    (admission,) = of_mixed.admissions
    assert (admission.hit_tokens, admission.hits_hold_its_tokens) == (24, False)


# --- books: what is held by nobody, by an ended request, or freed twice (vllm #42571, #46283, sglang #11970) ----------


def _tampered(run: CheckedRun, step: int, change: Any) -> MemoryTimeline:
    return read_steps([(at, change(list(events)) if at == step else events) for at, events in run.sink.steps])


def test_an_ended_request_that_keeps_its_blocks() -> None:
    run = (
        scenario(blocks=16, block_size=4)
        .request("leaky", "l" * 10, reply="xx")
        .request("other", "o" * 10, reply="xxx")
        .run()
    )
    timeline = _tampered(
        run,
        1,
        lambda events: [e for e in events if not (isinstance(e, ev.BlockReleased) and e.request_id == "leaky")],
    )
    (finding,) = (row for row in whole_run(timeline)["findings"] if row["kind"] == "books_do_not_balance")
    assert finding["first_step"] == 1
    assert finding["request_ids"] == ["leaky"]
    assert finding["figures"] == {
        "num_unaccounted_blocks": 3,
        "ended_steps": {"leaky": 1},
        "missing_event": "BlockReleased",
        "block_ids": [1, 2, 3],
        "num_unaccounted_tokens": 12,
        "num_free_blocks": 9,
        "num_held_blocks": 3,
        "pool": 15,
    }


def test_a_block_that_is_given_back_twice() -> None:
    run = (
        scenario(blocks=16, block_size=4, enable_prefix_caching=False)
        .request("first", "f" * 7, reply="x")
        .request("second", "s" * 7, reply="xxx")
        .run()
    )

    def free_twice(events: list[ev.Event]) -> list[ev.Event]:
        return [
            msgspec.structs.replace(e, freed_to_head=(4, 1)) if isinstance(e, ev.BlockReleased) else e for e in events
        ]

    timeline = _tampered(run, 2, free_twice)
    findings = [row for row in whole_run(timeline)["findings"] if row["kind"] == "books_do_not_balance"]
    assert findings[0]["figures"] == {
        "block_id": 1,
        "first_free": {"step": 0, "request_id": "first"},
        "second_free": {"step": 2, "request_id": "second"},
    }


# --- what did each request that shared X's steps cost X? (local-inference-lab/vllm #541) ------------------------------


def test_gaps_are_made_of_what_others_did() -> None:
    run = (
        scenario(blocks=64, block_size=4, budget=8)
        .request("decoder", "dddd", reply="x" * 8)
        .request("long", "l" * 20, reply="x", at=2)
        .run()
    )
    slow = why(run, "decoder")["slow"]
    assert slow["basis"] == "no_clock"
    assert [(row["request_id"], row["steps"], row["tokens"]) for row in slow["shared_prefill"]] == [
        ("long", [2, 3, 4], [7, 7, 6])
    ]
    assert [(gap["to_step"], gap["others_prefill_tokens"]) for gap in slow["gaps"][:3]] == [
        (2, {"long": 7}),
        (3, {"long": 7}),
        (4, {"long": 6}),
    ]


def test_can_a_request_ever_fit() -> None:
    run = scenario(blocks=5, block_size=4).request("big", "b" * 30).request("small", "s").run()
    instant = why(run, "small")["waiting"]["instant"]
    assert instant["capacity"]["can_ever_fit"] is True
    instant = why(run, "big")["waiting"]["instant"]
    assert instant["capacity"] == {
        "can_ever_fit": False,
        "can_finish_alone": False,
        "pool": 4,
        "blocks_of_all_tokens": 8,
        "blocks_at_its_longest": 8,
    }
    (finding,) = (row for row in whole_run(read(run))["findings"] if row["kind"] == "never_fits")
    assert (finding["request_ids"], finding["figures"]["need"], finding["figures"]["have"]) == (["big", "small"], 8, 4)


def test_a_rejected_request_says_what_it_asked_for() -> None:
    """It never waited: an engine refused it at the door."""
    run = scenario().request("a", "aaaa").run()
    rejected = ev.RequestRejected(request_id="long", reason="max_model_len", have=300, limit=128, message="cut it")
    timeline = read_steps(
        [(step, [rejected, *events] if step == 1 else events) for step, events in _with_two_steps(run)]
    )
    with pytest.raises(UsageError) as caught:
        explain(timeline, "long")
    assert caught.value.message == (
        "long was rejected at step 1, before it reached a queue: max_model_len allows 128, it asked for 300: cut it"
    )


def _with_two_steps(run: CheckedRun) -> list[tuple[int, list[ev.Event]]]:
    """Adds a step without work to a run of one step."""
    ((step, events),) = run.sink.steps
    empty: list[ev.Event] = [
        ev.StepStarted(step=1, token_budget=64),
        ev.AdmissionEnded(reason="empty", num_waiting=0, token_budget_left=64),
        ev.TokensScheduled(request_ids=(), num_tokens=()),
        ev.StepFinished(),
    ]
    return [(step, list(events)), (1, empty)]


def test_a_step_that_failed_tested_nobody() -> None:
    run = scenario(blocks=9).request("runner", "r" * 14, reply="x" * 6).request("heavy", "h" * 20, at=1).run(3)
    failed: list[ev.Event] = [
        ev.StepStarted(step=3, token_budget=64),
        ev.StepFailed(phase="schedule", error_type="RuntimeError", message="boom"),
    ]
    answer = explain(read_steps([*run.sink.steps, (3, failed)]), "heavy", 3)
    assert answer.waiting.instant is not None
    assert answer.waiting.instant.tests == ()
    (wait,) = answer.waiting.waits
    assert [(stretch.first_step, stretch.last_step, stretch.reason) for stretch in wait.stretches] == [
        (1, 2, "full_isl"),
        (3, 3, None),
    ]


def test_all_but_the_prefix_cache_is_told_before_the_recording_is_read_for_it() -> None:
    told: list[WhyAnswer] = []
    answer = explain(read(preempting()), "b", early=told.append)
    (early,) = told
    assert (early.missed, answer.missed is None) == (None, False)
    assert early == replace(answer, missed=None)
    lines = as_text(report(early)).splitlines()
    assert any("what the prefix cache held for it is being read" in line for line in lines)
    whole = as_text(report(answer)).splitlines()
    assert [line for line in lines if "is being read" not in line] == [line for line in whole if line in lines]


def test_a_difference_knows_of_the_other_only_what_it_had_at_the_lookup() -> None:
    """Both are admitted in step 0: then a has its 8 tokens, all shared; what it samples afterwards is none of it."""
    run = scenario(budget=64).request("a", "abcdefgh", reply="xyzw").request("b", "abcdefghQR", reply="uv").run()
    missed = explain(read(run), "b").missed
    assert missed is not None
    difference = missed.admissions[0].difference
    assert difference is not None
    assert (difference.other_id, difference.token_position, difference.token_id) == ("a", 8, ord("Q"))
    assert (difference.other_token_id, difference.alike_behind) == (None, 0)
