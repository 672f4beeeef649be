"""Who gives up blocks, and what of its work stays."""

from __future__ import annotations

from kvscope import events as ev
from tests.builders import CheckedRun, ScenarioBuilder, scenario


def victim_scheduled_in_the_same_step() -> ScenarioBuilder:
    """In step 3 `low` is given its last 6 tokens, which fill the block of tokens 20 to 23; `high` then lacks one."""
    built = scenario(blocks=9, budget=8, seqs=4, policy="priority", long_prefill_token_threshold=6)
    built.request("low", "abcdefghijklmnopqrstuvwxyz", priority=1, reply="..")
    return built.request("high", "high", at=1, priority=0, reply="xyz")


def test_a_victim_that_was_scheduled_in_the_step_takes_its_publication_back() -> None:
    """vLLM 0.32.0 leaves the block hashed: `low` would resume with a hit of 24 tokens, of which 20 were computed."""
    run = victim_scheduled_in_the_same_step().run()
    (preempted,) = run.events(3, ev.RequestPreempted)
    assert (preempted.request_id, preempted.num_returned_tokens, preempted.num_lost_tokens) == ("low", 6, 20)
    (cached,) = run.events(3, ev.BlockCached)
    (uncached,) = run.events(3, ev.BlockUncached)
    assert (cached.request_id, cached.first_index) == ("low", 5)
    assert (uncached.request_id, uncached.block_ids, uncached.reason) == ("low", cached.block_ids, "preempted")
    (released,) = run.events(3, ev.BlockReleased)
    assert cached.block_ids[0] in released.freed_to_head
    ((_, hit),) = run.all_events(ev.PrefixCacheHit)
    assert (hit.request_id, hit.num_hit_tokens, hit.num_own_hit_tokens) == ("low", 20, 20)


def test_a_victims_tokens_go_back_to_the_budget() -> None:
    step = victim_scheduled_in_the_same_step().run(4).dump()[3]
    assert (step["num_scheduled_tokens"], step["token_budget_left"]) == ({"high": 1}, 7)


def tight(policy: str) -> ScenarioBuilder:
    """Three prompts of two full blocks each, six blocks: the first that decodes lacks one."""
    return scenario(blocks=7, policy=policy, enable_prefix_caching=False)


def preempted(run: CheckedRun, step: int) -> list[tuple[str, str]]:
    return [(event.request_id, event.beneficiary_id) for event in run.events(step, ev.RequestPreempted)]


def test_first_come_first_served_preempts_the_last_admitted() -> None:
    run = tight("fcfs").request("a", "a" * 8, reply="12").request("b", "b" * 8, reply="12")
    checked = run.request("c", "c" * 8, reply="12").run(2)
    assert preempted(checked, 1) == [("c", "a")]
    assert checked.dump()[1]["num_scheduled_tokens"] == {"a": 1, "b": 1}


def test_several_victims_of_a_step_come_back_in_their_old_order() -> None:
    built = scenario(blocks=7, enable_prefix_caching=False, num_lookahead_tokens=0)
    for request_id in "abc":
        built.request(request_id, request_id * 8, reply="123456")
    run = built.run(6)
    assert preempted(run, 1) == [("c", "a")]
    assert preempted(run, 5) == [("b", "a")]
    assert run.dump()[5]["after_schedule"]["waiting"] == ["b", "c"]


def test_priority_preempts_the_least_urgent_and_of_equals_the_first_admitted() -> None:
    run = tight("priority").request("a", "a" * 8, reply="12", priority=1, arrival_time=0.0)
    run.request("b", "b" * 8, reply="12", priority=2, arrival_time=0.0)
    checked = run.request("c", "c" * 8, reply="12", priority=2, arrival_time=0.0).run(2)
    assert preempted(checked, 1) == [("b", "a")]


def test_a_request_that_preempts_itself_ends_the_step_for_everybody_behind_it() -> None:
    """`worst` is admitted first and lacks a block; the better one behind it gets nothing, though blocks are free."""
    built = scenario(blocks=7, policy="priority", enable_prefix_caching=False, budget=12, seqs=4)
    run = built.request("worst", "a" * 16, reply="123", priority=9).request("b", "b" * 8, reply="12", at=1).run(4)
    steps = run.dump()
    assert steps[2]["before"]["running"] == ["worst", "b"]
    assert preempted(run, 2) == [("worst", "worst")]
    assert steps[2]["num_scheduled_tokens"] == {}
    assert steps[2]["waiting_stop"] == "preempted"
    assert steps[3]["num_scheduled_tokens"] == {"b": 1}


def test_a_step_that_preempts_admits_nobody_though_the_newcomer_would_fit() -> None:
    run = tight("fcfs").request("a", "a" * 8, reply="123").request("b", "b" * 16, reply="12")
    checked = run.request("new", "n", at=1).run(2)
    assert preempted(checked, 1) == [("b", "a")]
    assert checked.dump()[1]["after_schedule"]["num_free_blocks"] == 3
    (blocked,) = checked.events(1, ev.RequestBlocked)
    assert (blocked.request_id, blocked.reason, blocked.have) == ("b", "preempted", 1)
