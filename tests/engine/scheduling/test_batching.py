"""The older ways of making up a batch, worked out by hand, and over the golden workloads with every invariant."""

from __future__ import annotations

import msgspec
import pytest

from kvscope.engine.scheduling.config import Batching
from kvscope.engine.scheduling.scenario import parse_scenario
from tests.analysis.reading import said
from tests.builders import CheckedRun, ScenarioBuilder, scenario
from tests.golden import golden_names, golden_runs


def split(run: CheckedRun) -> list[dict[str, int]]:
    return [record["num_scheduled_tokens"] for record in run.dump()]


def stops(run: CheckedRun) -> list[str]:
    return [record["waiting_stop"] for record in run.dump()]


def three_of_two(batching: Batching) -> ScenarioBuilder:
    """Three requests for two places; the first is done after one step, the second after three."""
    made = scenario(seqs=2, batching=batching)
    return made.request("a", "ab", reply="1").request("b", "cd", reply="123").request("c", "ef", reply="1")


def test_static_waits_until_every_member_is_done() -> None:
    run = three_of_two("static").run()
    assert split(run) == [{"a": 2, "b": 2}, {"b": 1}, {"b": 1}, {"c": 2}]
    assert stops(run) == ["max_num_seqs", "policy", "policy", "empty"]
    run = three_of_two("unified").run()
    assert split(run) == [{"a": 2, "b": 2}, {"b": 1, "c": 2}, {"b": 1}]


def test_static_forms_a_batch_over_the_steps_that_its_prompts_need_but_takes_no_later_arrival() -> None:
    made = scenario(budget=3, seqs=3, batching="static")
    made.request("a", "abc", reply="12").request("b", "defg", reply="1").request("late", "x", at=1)
    run = made.run()
    # Step 2 has a sequence and a token for late, and does not give them.
    assert split(run) == [{"a": 3}, {"a": 1, "b": 2}, {"b": 2}, {"late": 1}]
    assert stops(run) == ["budget", "policy", "policy", "empty"]


def test_static_takes_a_preempted_member_back_but_nobody_else() -> None:
    made = scenario(blocks=7, block_size=2, seqs=4, batching="static", enable_prefix_caching=False)
    made.request("a", "abc", reply="12345").request("b", "def", reply="123").request("c", "ghi", reply="123")
    run = made.request("late", "x", at=1).run()
    # Step 2: a needs a third block of the six, c gives its two. Step 3: b is done, c's five tokens fit again.
    assert split(run) == [
        {"a": 3, "b": 3, "c": 3},
        {"a": 1, "b": 1, "c": 1},
        {"a": 1, "b": 1},
        {"a": 1, "c": 5},
        {"a": 1},
        {"late": 1},
    ]
    assert stops(run) == ["empty", "policy", "preempted", "policy", "policy", "empty"]


def chunked_and_decode(batching: Batching) -> ScenarioBuilder:
    """A prompt of six tokens comes while another request decodes; the budget is four."""
    made = scenario(budget=4, seqs=2, batching=batching)
    return made.request("a", "ab", reply="123").request("b", "cdefgh", reply="1", at=1)


def test_exclusive_steps_are_all_prefill_or_all_decode_prefill_first() -> None:
    run = chunked_and_decode("exclusive").run()
    assert split(run) == [{"a": 2}, {"b": 4}, {"b": 2}, {"a": 1}, {"a": 1}]
    run = chunked_and_decode("unified").run()
    assert split(run) == [{"a": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 3}]


def test_exclusive_decodes_where_no_prompt_is_admitted() -> None:
    made = scenario(seqs=1, batching="exclusive")
    run = made.request("a", "ab", reply="12").request("b", "cd", reply="1").run()
    assert split(run) == [{"a": 2}, {"a": 1}, {"b": 2}]
    assert stops(run) == ["max_num_seqs", "max_num_seqs", "empty"]


@pytest.mark.parametrize("batching", ["static", "exclusive"])
@pytest.mark.parametrize(("kind", "name"), [entry for entry in golden_names() if entry[0] == "random"])
def test_every_request_gets_the_same_tokens_as_with_unified_batching(kind: str, name: str, batching: str) -> None:
    golden = golden_runs(kind)[name]
    workload = golden["workload"]
    asked = parse_scenario({**workload, "config": {**workload["config"], "batching": batching}, "max_steps": 2000})
    never_aborted = [msgspec.structs.replace(request, cancel_step=None, cancel_mid=False) for request in asked.requests]
    run = CheckedRun(msgspec.structs.replace(asked, requests=tuple(never_aborted)))
    outcome = run.run()
    assert (outcome.stuck, outcome.hit_max_steps) == (None, False)
    outputs = {request.request_id: request.output_token_ids for request in outcome.requests}
    expected = golden["trace"]["output_token_ids"]
    for request in asked.requests:
        if request.cancel_step is None:
            assert outputs[request.id] == expected[request.id]


def test_a_closed_batch_says_so() -> None:
    run = three_of_two("static").run()
    assert said(run, 1)[0] == (
        "✗ c not admitted: 1 request of the batch still runs (static batching admits nobody before they end)"
    )
