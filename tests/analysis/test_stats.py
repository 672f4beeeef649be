"""Statistics of small runs, each figure worked out from the run's steps by hand."""

from __future__ import annotations

import pytest

from kvscope.analysis.latencies import RequestLatency, latencies
from kvscope.analysis.percentiles import Distribution
from kvscope.analysis.request_figures import Admission
from kvscope.analysis.run_figures import FIGURE_KINDS, run_figures
from kvscope.analysis.speculation import Position, Speculation
from kvscope.analysis.stats import HitSummary, Throughput, group_summaries, read_statistics
from kvscope.analysis.stats_words import figure_words
from kvscope.analysis.wrong_readings import wrong_readings
from kvscope.errors import UsageError
from tests.analysis.reading import read
from tests.analysis.runs import preempting, sharing
from tests.analysis.test_whatif import timed
from tests.builders import scenario
from tests.cases import cases, recorded_case


def test_latencies_in_steps_of_a_run_with_a_preemption() -> None:
    """a samples in steps 0 to 2; b in 0, is preempted in 1, back in 3 and done in 4; c waits from 1 to 3."""
    found = read_statistics(read(preempting()))
    assert found.requests == [
        RequestLatency(request_id="a", input_processing=0, queue=0, ttft=1, end_to_end=3, itls=(1, 1)),
        RequestLatency(request_id="b", input_processing=0, queue=0, ttft=1, end_to_end=5, itls=(3, 1)),
        RequestLatency(request_id="c", input_processing=0, queue=2, ttft=3, end_to_end=3, itls=()),
    ]
    summary = found.latencies
    assert summary.unit == "steps"
    # Gaps 1, 1, 1, 3: rank 2.7 is 1 + 0.7 × 2, rank 2.85 and 2.97 likewise.
    itl = summary.itl
    assert itl is not None
    assert [round(value, 9) for value in (itl.mean, itl.p50, itl.p90, itl.p95, itl.p99)] == [1.5, 1, 2.4, 2.7, 2.94]
    # Waits 0, 0, 2: rank 1.8, 1.9 and 1.98.
    queue = summary.queue
    assert queue is not None
    assert [round(value, 9) for value in (queue.p50, queue.p90, queue.p95, queue.p99)] == [0, 1.6, 1.8, 1.96]
    assert found.times is None


def test_what_a_preemption_threw_away_and_what_was_computed_twice() -> None:
    figures = read_statistics(read(preempting())).figures
    b = figures.requests["b"]
    # It had computed its 5 tokens; 4 of them are a full block that it hits on its return.
    assert (b.preempted_steps, b.num_lost_tokens) == ([1], 5)
    first, second = b.admissions
    assert first == Admission(step=0, num_tokens=5, num_hit_tokens=0, num_own_hit_tokens=0)
    assert (second.step, second.num_tokens) == (3, 6)
    assert b.num_recomputed_tokens == 5 - second.num_hit_tokens
    assert figures.preemptions == [(1, "b")]


def test_hits_of_first_admissions_and_of_returns_are_kept_apart() -> None:
    """The figures of case c13, and the real engine's own counters."""
    answer = cases()["c13_self_vs_cross"]["answer"]
    found = read_statistics(recorded_case("c13_self_vs_cross"))
    counters = answer["engine_counters"]
    assert found.hits == HitSummary(
        num_queried_tokens=counters["queries"],
        num_first_hit_tokens=counters["hits"],
        num_requeried_tokens=counters["preempted_queries"],
        num_other_hit_tokens=answer["cross_hit_tokens"],
        num_own_hit_tokens=answer["self_hit_tokens"],
    )
    assert {request.request_id: request.num_recomputed_tokens for request in found.figures.requests.values()} == answer[
        "recomputed"
    ]
    assert [{"step": step, "id": request_id} for step, request_id in found.figures.preemptions] == answer["preemptions"]


def test_tokens_computed_twice_equal_the_real_schedulers() -> None:
    answer = cases()["c09_preempt_cycle"]["answer"]["requests"]
    figures = read_statistics(recorded_case("c09_preempt_cycle")).figures
    twice = {request_id: figures.requests[request_id].num_recomputed_tokens for request_id in answer}
    assert twice == {request_id: request["recomputed"] for request_id, request in answer.items()}


def test_throughput_budget_batches_and_pool() -> None:
    """Step 0: a's prompt, 9 tokens. Step 1: b's 2 behind its hit of 8, and 1 of a. Steps 2, 3: decodes."""
    found = read_statistics(read(sharing()))
    assert found.throughput == Throughput(
        num_prompt_tokens=19, num_computed_prompt_tokens=11, num_output_tokens=6, duration_ns=None, num_steps=4
    )
    assert found.budget_use == (9 + 3 + 2 + 1) / (4 * 64)
    assert found.batch_sizes == Distribution(
        num_values=4, mean=1.5, p50=1.5, p90=2, p95=2, p99=2, smallest=1, largest=2
    )
    assert found.hits.hit_rate == 8 / 19
    pool = found.occupancy
    assert pool is not None
    # a has 3 blocks, b shares 2 of them: 3, 4, then a is gone, then b too.
    assert (pool.num_usable_blocks, pool.peak_live, pool.peak_step) == (31, 4 / 31, 1)
    assert found.occupancy_columns == (3 / 31, 4 / 31, 3 / 31, 0)


def test_times_of_a_run_with_a_clock() -> None:
    """Steps take 1 ms, 10 µs a prefill token and 0.2 ms a decode; requests come 1 µs before their step."""
    made = scenario(budget=32, max_model_len=64)
    run = made.request("a", "a" * 20, reply="123").request("b", "b" * 10, reply="12", at=1).run()
    timeline = timed(run.sink.steps)
    # Step 0: 1.2 ms. Step 1: a decodes beside b's prompt, 1.3 ms. Step 2: both decode, 1.4 ms.
    figures = run_figures(timeline.select_events(FIGURE_KINDS, 0, 9))
    assert list(figures.steps.start_ns) == [0, 1_200_000, 2_500_000]
    assert latencies(figures, "ns") == [
        RequestLatency(
            request_id="a",
            input_processing=0,
            queue=0,
            ttft=1_200_000,
            end_to_end=3_900_000,
            itls=(1_300_000, 1_400_000),
        ),
        RequestLatency(
            request_id="b", input_processing=0, queue=1000, ttft=1_301_000, end_to_end=2_701_000, itls=(1_400_000,)
        ),
    ]
    found = read_statistics(timeline)
    assert round(found.throughput.per_second(found.throughput.num_output_tokens) or 0, 6) == round(5 / 0.0039, 6)
    times = found.times
    assert times is not None
    assert (times.total_ns, times.forward_ns, times.between_ns) == (3_900_000, 3_900_000, 0)


def test_groups_by_priority_salt_adapter_and_length() -> None:
    made = scenario(seqs=1, max_model_len=300, blocks=100)
    made.request("a", "abc", priority=1).request("b", "b" * 130, priority=0, cache_salt="t")
    made.request("c", "xyz", lora_name="fr")
    found = read_statistics(read(made.run()))
    by = {name: [(group.name, group.num_requests) for group in group_summaries(found, name)] for name in GROUPINGS}
    assert by == {
        "priority": [("priority 0", 2), ("priority 1", 1)],
        "salt": [("(no salt)", 2), ("t", 1)],
        "adapter": [("(no adapter)", 2), ("fr", 1)],
        "length": [("prompt 1–127", 2), ("prompt 128–511", 1)],
    }
    with pytest.raises(UsageError, match="--by colour: group by priority, salt, adapter, length"):
        group_summaries(found, "colour")


GROUPINGS = ("priority", "salt", "adapter", "length")


def readings(timeline_of: str) -> set[str]:
    return {warning.reading for warning in read_statistics(recorded_case(timeline_of)).warnings}


def test_wrong_readings_are_named_where_the_figures_show_them_and_only_there() -> None:
    # Blocks keep its queue, half of the time to first token is queueing, all its hits are its own.
    assert readings("c09_preempt_cycle") == {"budget_use", "ttft_is_queueing", "own_hits", "mean_hides_tail"}
    # Sequences keep the queue.
    found = read_statistics(recorded_case("c10_priority_inversion"))
    assert "look at max_num_seqs" in next(w.text for w in found.warnings if w.reading == "budget_use")
    # Own hits are 16 of 60, and the queue is short.
    assert "own_hits" not in readings("c13_self_vs_cross")
    calm = read_statistics(read(sharing()))
    assert wrong_readings(calm.figures, calm.requests) == []


def test_drafts_by_position_and_what_each_verification_gave() -> None:
    """`a` comes plainly; `bc` is right and gives b, c, d; `xx` gives e; `fx` is half right and gives f, g; then h."""
    made = scenario(num_spec_tokens=2).request("r", "pq", reply="abcdefgh", drafts=("bc", "xx", "fx"))
    found = read_statistics(read(made.run()))
    assert found.speculation == Speculation(
        num_verifications=3,
        num_drafted=6,
        num_accepted=3,
        num_rolled_back=3,
        positions=(
            Position(position=1, num_drafted=3, num_accepted=2),
            Position(position=2, num_drafted=3, num_accepted=1),
        ),
    )
    # Nine tokens computed, six emitted.
    assert (found.speculation.mean_acceptance_length, found.speculation.tokens_computed_per_emitted) == (2, 1.5)
    assert (found.throughput.num_steps, found.throughput.num_output_tokens) == (5, 8)
    assert dict(figure_words(found))["drafts"] == "50.0% of 6 accepted; by position 1: 2 of 3, 2: 1 of 3"


def test_without_drafts_there_is_no_speculation() -> None:
    assert read_statistics(read(sharing())).speculation is None
