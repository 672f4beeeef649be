"""`kvscope whatif` on each case's base run against the real scheduler's run with the setting changed."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvscope.analysis.whatif import Reproduction, WhatIfStudy
from kvscope.analysis.why import explain
from kvscope.cli import whatif_report
from kvscope.cli.why import as_json as why_as_json
from kvscope.replay import MemoryTimeline
from kvscope.replay.dump import dump_steps
from tests.analysis.reading import read_steps
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
    if truth := pair["answer"].get("preemptions_of_c5"):
        assert {run: found["preemptions_per_request"][run]["c5"] for run in ("base", "changed")} == truth


@pytest.mark.parametrize("name", [name for name, pair in pairs().items() if "long_prefill" in pair["answer"]])
def test_the_changed_run_is_explained_as_a_recording_of_its_own(name: str) -> None:
    """What `kvscope whatif --record` writes, `kvscope why` reads: the long prefill under the changed setting."""
    pair = pairs()[name]
    truth = pair["answer"]["long_prefill"]
    changed = read_steps(WhatIfStudy(recorded_case(pair["base"])).steps(change(pair)))
    chunks = explained(changed, "long")["slow"]["first_token"]["chunks"]
    assert [chunk["step"] for chunk in chunks] == truth["prefill_steps"]
    assert [chunk["tokens"] for chunk in chunks] == truth["prefill_chunks"]
    assert {str(chunk["step"]): chunk["step_total_tokens"] for chunk in chunks} == truth["step_total_tokens"]
    assert {str(chunk["step"]): chunk["share_pct"] for chunk in chunks} == truth["long_share_pct"]
    shared: dict[str, list[int]] = {}
    budget: dict[str, list[int]] = {}
    for request_id in truth["steps_shared_with_long_prefill"]:
        answer = explained(changed, request_id)
        (shared[request_id],) = (
            row["steps"] for row in answer["slow"]["shared_prefill"] if row["request_id"] == "long"
        )
        waited = [row for wait in answer["waiting"]["waits"] for row in wait["steps"] if row["stop"] == "budget"]
        if request_id in truth["waiting_for_budget"]:
            budget[request_id] = [row["step"] for row in waited]
    assert (shared, budget) == (truth["steps_shared_with_long_prefill"], truth["waiting_for_budget"])


def explained(timeline: MemoryTimeline, request_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(why_as_json(explain(timeline, request_id)))
    return found


@pytest.mark.parametrize("base", sorted({pair["base"] for pair in pairs().values()}))
def test_with_its_own_settings_every_base_run_repeats_itself(base: str) -> None:
    study = WhatIfStudy(recorded_case(base))
    num_steps = study.workload.num_steps
    assert study.reproduce() == Reproduction(num_steps, None)
    unchanged = study.run({})
    assert (unchanged.settings, unchanged.comparison.first_difference) == ({}, None)
