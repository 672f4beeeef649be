"""The menu's workloads: fitted figures bring about their mechanism, and where they cannot the remedy does."""

from __future__ import annotations

from typing import Any

import pytest

from kvscope.analysis.workload_menu import (
    WORKLOADS,
    FigureError,
    FittedWorkload,
    Rehearsal,
    Workload,
    find_workload,
    rehearse,
)
from kvscope.control import PlannedRequest
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.settings import scheduler_config
from kvscope.errors import UsageError
from kvscope.events import EngineConfigured


def config(**settings: Any) -> SchedulerConfig:
    """A pool of 64 blocks of 16 and a budget of 64, but for these settings."""
    return scheduler_config({"num_gpu_blocks": 65, "max_num_batched_tokens": 64, "max_model_len": 1024} | settings)


SMALL = {
    "roomy": config(),
    "tight": config(num_gpu_blocks=20, max_num_batched_tokens=32, max_model_len=304),
    "priority": config(policy="priority", watermark=0.1, max_num_seqs=3),
    "blocks of one": config(block_size=1, num_gpu_blocks=300, max_model_len=299),
    "first chunk": config(scheduler_reserve_full_isl=False, long_prefill_token_threshold=16),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_fitted_figures_bring_about_what_the_workload_is_for(workload: Workload, name: str) -> None:
    found = run(workload, SMALL[name], workload.fit(SMALL[name]))
    assert workload.happens(found), found
    assert (found.is_cut, found.stuck) == (False, "")


def run(workload: Workload, settings: SchedulerConfig, figures: dict[str, int]) -> Rehearsal:
    workload.check(settings, figures)
    return rehearse(settings, workload.requests(settings, figures))


@pytest.mark.parametrize(
    ("name", "settings", "remedy"),
    [
        ("shared_prefix", config(enable_prefix_caching=False), {"enable_prefix_caching": True}),
        ("long_prefill", config(max_num_batched_tokens=2048), {"max_num_batched_tokens": 296}),
        ("long_prefill", config(batching="static"), {"batching": "unified"}),
        ("long_prefill", config(max_num_seqs=1), {"max_num_seqs": 4}),
        ("preemption_storm", config(num_gpu_blocks=65_537), {"num_gpu_blocks": 81}),
        ("preemption_storm", config(max_num_seqs=1), {"max_num_seqs": 8}),
    ],
)
def test_where_the_settings_are_in_the_way_the_remedy_names_the_one(
    name: str, settings: SchedulerConfig, remedy: dict[str, Any]
) -> None:
    workload = find_workload(name)
    figures = workload.fit(settings)
    assert not workload.happens(run(workload, settings, figures))
    assert workload.remedy(settings, figures) == remedy
    changed = scheduler_config(settings.as_settings() | remedy)
    assert workload.happens(run(workload, changed, figures))


def test_a_rehearsal_counts_what_the_scheduler_does() -> None:
    """Worked out by hand: 2 prompts of 20 tokens, 16 of them shared, 8 blocks of 8, 16 tokens a step.

    Step 0 computes 16 tokens of a-1, step 1 the other 4 of them (its first token) and all 4 of a-2's that do not hit.
    """
    settings = config(num_gpu_blocks=9, block_size=8, max_num_batched_tokens=16, max_model_len=64)
    requests = [
        PlannedRequest(request_id="a-1", num_shared_tokens=16, num_own_tokens=4, num_output_tokens=3),
        PlannedRequest(request_id="a-2", num_shared_tokens=16, num_own_tokens=4, num_output_tokens=3, before_step=1),
    ]
    assert rehearse(settings, requests) == Rehearsal(
        num_steps=4,
        num_prompt_tokens=40,
        num_hit_tokens=16,
        num_chunked_prompts=1,
        most_waiting=0,
    )


def test_a_rehearsal_counts_preemptions_evictions_and_who_waits() -> None:
    """3 usable blocks of 4: two requests of 4+6 tokens need 6 blocks; a third waits for a place among two."""
    settings = config(num_gpu_blocks=4, block_size=4, max_num_batched_tokens=8, max_model_len=12, max_num_seqs=2)
    requests = [PlannedRequest(request_id=f"r-{number}", num_own_tokens=4, num_output_tokens=6) for number in range(3)]
    found = rehearse(settings, requests)
    assert found.num_preemptions > 0
    assert found.num_lost_tokens >= 4 * found.num_preemptions
    assert found.num_evicted_blocks > 0
    assert found.most_waiting == 2


def test_a_rehearsal_ends_where_it_is_told_to_and_names_who_can_never_go_on() -> None:
    forever = PlannedRequest(request_id="big-1", num_own_tokens=40, num_output_tokens=1)
    settings = config(num_gpu_blocks=4, block_size=4, max_model_len=100)
    assert rehearse(settings, [forever]).stuck.startswith("big-1 can never go on: its 40 tokens fill 10 blocks of 4")
    long = PlannedRequest(request_id="a-1", num_own_tokens=4, num_output_tokens=90)
    assert rehearse(config(), [long], max_steps=7) == Rehearsal(num_steps=7, num_prompt_tokens=4, is_cut=True)
    assert rehearse(config(), [long], is_left=lambda: True) == Rehearsal(is_cut=True)


def test_a_mix_is_another_one_for_another_seed_and_the_same_for_the_same() -> None:
    mix = find_workload("random-mix")
    figures = mix.fit(config())
    same = mix.requests(config(), figures)
    assert same == mix.requests(config(), figures)
    assert same != mix.requests(config(), figures | {"seed": 1})
    assert len(same) == figures["num_requests"]
    assert max(request.num_shared_tokens + request.num_own_tokens for request in same) <= figures["max_prompt_tokens"]
    assert {request.priority for request in same} == {0}
    assert {request.priority for request in mix.requests(config(policy="priority"), figures)} == {0, 1, 2}


@pytest.mark.parametrize(
    ("name", "figure", "value", "message"),
    [
        ("shared_prefix", "num_requests", 1, "at least 2, not 1"),
        ("shared_prefix", "num_shared_prompt_tokens", 2000, "a prompt of 2016 tokens: max_model_len 1024 allows 1023"),
        ("shared_prefix", "num_own_prompt_tokens", 928, "a prompt of 1024 tokens: max_model_len 1024 allows 1023"),
        ("preemption_storm", "num_prompt_tokens", 1024, "a prompt of 1024 tokens: max_model_len 1024 allows 1023"),
        ("long_prefill", "num_output_tokens", 0, "at least 1, not 0"),
        ("random_mix", "seed", -1, "at least 0, not -1"),
        ("random_mix", "num_requests", 513, "at most 512, not 513"),
    ],
)
def test_a_figure_that_cannot_be_is_named_with_its_limit(name: str, figure: str, value: int, message: str) -> None:
    workload = find_workload(name)
    with pytest.raises(FigureError) as caught:
        workload.check(config(), workload.fit(config()) | {figure: value})
    assert (caught.value.figure, caught.value.message) == (figure, message)


def test_a_workload_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="shared_prefix, long_prefill, preemption_storm, random_mix"):
        find_workload("storm")


def configured(settings: SchedulerConfig) -> EngineConfigured:
    return EngineConfigured(
        model="toy",
        device="cpu",
        dtype="float32",
        settings=settings.as_settings(),
        num_gpu_blocks=settings.num_gpu_blocks,
        block_size=settings.block_size,
        watermark_blocks=0,
    )


def test_a_storm_that_a_pool_is_too_large_for_is_advised_a_pool_that_it_fits() -> None:
    storm = FittedWorkload(find_workload("preemption_storm"), configured(config(num_gpu_blocks=65_537)))
    forecast = storm.foretell(storm.fitted)
    assert (forecast.rehearsal.num_preemptions, forecast.remedy) == (0, {"num_gpu_blocks": 81})
    figures, errors = storm.read({"num_requests": "", "num_prompt_tokens": "12", "seed": "4"})
    assert errors == {}
    assert figures == storm.fitted | {"num_prompt_tokens": 12, "seed": 4}
    assert len(storm.plan(figures)) == storm.fitted["num_requests"]


def test_advice_that_would_not_help_is_not_given() -> None:
    """One sequence at a time: more at once would help, but no setting of this workload's is in the way."""
    mix = FittedWorkload(find_workload("random_mix"), configured(config(max_num_seqs=1)))
    forecast = mix.foretell(mix.fitted)
    assert (forecast.rehearsal.num_mixed_steps, forecast.remedy) == (0, {})


def test_fields_with_no_number_are_told_apart() -> None:
    mix = FittedWorkload(find_workload("random_mix"), configured(config()))
    assert mix.read({"num_requests": "many", "seed": "1.5"})[1] == {
        "num_requests": "a whole number, not 'many'",
        "seed": "a whole number, not '1.5'",
    }
    assert mix.read({"num_requests": "1"})[1] == {"num_requests": "at least 2, not 1"}
