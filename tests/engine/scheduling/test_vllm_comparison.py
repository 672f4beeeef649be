"""The random scenarios that are held against vLLM's scheduler where there is one: here against every invariant.

And that the comparison would see a difference.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from benchmarks.vllm_conformance import compare, random_scenario, run_here
from kvscope.engine.scheduling.scenario import parse_scenario
from tests.builders import CheckedRun


def vllm_records(scenario: dict[str, Any]) -> list[dict[str, Any]]:
    """What vLLM would answer where it decides the same."""
    records, num_comparable = run_here(scenario)
    return [{**record, "after_update": record["after_schedule"] | record["after_update"]} for record in records][
        :num_comparable
    ]


class Answers:
    """Stands for an interpreter with vLLM that says this."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __call__(self, scenario: dict[str, Any], num_steps: int) -> Any:
        return self._answer


@pytest.mark.parametrize("seed", range(25))
def test_a_random_scenario_keeps_every_invariant(seed: int) -> None:
    run = CheckedRun(parse_scenario(random_scenario(seed)))
    outcome = run.run()
    assert outcome.stuck is not None or outcome.hit_max_steps or not run.scheduler.requests


def test_a_difference_in_any_field_is_seen() -> None:
    scenario = random_scenario(3)
    told = vllm_records(scenario)
    assert compare(scenario, Answers(told)) == (len(told), None)
    step = next(index for index, record in enumerate(told) if record["sampled"] and record["num_scheduled_tokens"])
    places: list[tuple[str, ...]] = [("sampled",), ("num_scheduled_tokens",), ("scheduled_spec_tokens",), ("finished",)]
    books = set(told[step]["after_schedule"]) - {"num_free_blocks"}  # it is the length of the free queue
    places += [(when, name) for when in ("after_schedule", "after_update") for name in sorted(books)]
    for place in places:
        other = copy.deepcopy(told)
        record = other[step]
        for name in place[:-1]:
            record = record[name]
        record[place[-1]] = "something else"
        num_equal, difference = compare(scenario, Answers(other))
        assert (num_equal, difference is not None and f"{'.'.join(place)}: kvscope" in difference) == (step, True)
    assert compare(scenario, Answers({"error": "it fell"})) == (0, "vLLM raised it fell")
