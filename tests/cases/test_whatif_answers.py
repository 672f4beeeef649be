"""`kvscope whatif` on each case's base run against the real scheduler's run with the setting changed."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvscope.analysis.whatif import Reproduction, WhatIfStudy
from kvscope.cli import whatif_report
from kvscope.replay.dump import dump_steps
from tests.cases import recorded_case


@cache
def pairs() -> dict[str, dict[str, Any]]:
    """Returns the what-if cases by name: `base`, `changed_setting`, `answer`, and the `steps` of the changed run."""
    found: dict[str, dict[str, Any]] = json.loads(
        lzma.decompress((Path(__file__).parent / "whatif.json.xz").read_bytes())
    )
    return found


def change(pair: dict[str, Any]) -> dict[str, Any]:
    name = pair["changed_setting"]["path"].removeprefix("config.")
    return {name: pair["changed_setting"]["to"]}


@pytest.mark.parametrize("name", pairs())
def test_every_step_of_the_changed_run_equals_the_real_schedulers(name: str) -> None:
    pair = pairs()[name]
    steps = WhatIfStudy(recorded_case(pair["base"])).steps(change(pair))
    records = json.loads(json.dumps(list(dump_steps(steps))))
    assert records == pair["steps"]  # block ids, free queue and all
    assert [list(record["num_scheduled_tokens"]) for record in records] == [
        list(step["num_scheduled_tokens"]) for step in pair["steps"]
    ]


@pytest.mark.parametrize("name", pairs())
def test_the_json_figures_equal_the_answer(name: str) -> None:
    pair = pairs()[name]
    study = WhatIfStudy(recorded_case(pair["base"]))
    found = json.loads(json.dumps(whatif_report.as_json(study.run(change(pair)), study.reproduce())))
    answer = {key: value for key, value in pair["answer"].items() if key in found}
    assert {key: found[key] for key in answer} == answer
    # Figures about one request or one prompt that the answers of some cases add are not whatif's.
    assert set(pair["answer"]) - set(answer) <= {"preemptions_of_c5", "long_prefill"}


@pytest.mark.parametrize("base", sorted({pair["base"] for pair in pairs().values()}))
def test_with_its_own_settings_every_base_run_repeats_itself(base: str) -> None:
    study = WhatIfStudy(recorded_case(base))
    num_steps = study.workload.num_steps
    assert study.reproduce() == Reproduction(num_steps, None)
    unchanged = study.run({})
    assert (unchanged.settings, unchanged.comparison.first_difference) == ({}, None)
