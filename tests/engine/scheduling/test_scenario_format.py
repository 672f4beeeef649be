"""A scenario file is read strictly: what is wrong with it, where, and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvscope.engine.scheduling.scenario import Scenario, load_scenario, parse_scenario
from kvscope.errors import UsageError

MAX = "9,223,372,036,854,775,807"


def workload(**request: Any) -> dict[str, Any]:
    entry = {"id": "a", "arrival_step": 0, "prompt_token_ids": [1, 2], "max_tokens": 2, "output_token_ids": [3, 4]}
    return {
        "config": {"num_gpu_blocks": 8, "max_num_batched_tokens": 8, "max_num_seqs": 2},
        "requests": [entry | request],
    }


def test_missing_settings_have_vllms_defaults() -> None:
    scenario = parse_scenario(workload())
    assert (scenario.name, scenario.max_steps, scenario.shows) == ("scenario", 400, "")
    assert (scenario.config.block_size, scenario.config.enable_prefix_caching, scenario.config.policy) == (
        16,
        True,
        "fcfs",
    )
    assert (scenario.requests[0].arrival_time, scenario.requests[0].priority) == (0.0, 0)


def test_a_golden_file_is_read_and_its_trace_ignored(tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    path.write_text(json.dumps({"workload": workload() | {"name": "g"}, "trace": {"anything": 1}}))
    assert load_scenario(path) == parse_scenario(workload() | {"name": "g"})


def test_the_name_is_the_files_where_it_has_none(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(workload()))
    loaded: Scenario = load_scenario(path)
    assert loaded.name == "mine"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], 'a scenario is an object with "config" and "requests"'),
        ({"config": {}}, "the scenario has no 'requests'"),
        (workload() | {"request": []}, "the scenario: there is no key 'request': did you mean 'requests'?"),
        (workload() | {"max_steps": 0}, "max_steps must be a whole number of at least 1, not 0"),
        (
            workload() | {"config": {"block_size": 4}},
            "config: num_gpu_blocks is missing (the pool's size, with the null block)",
        ),
        (
            workload() | {"config": {"num_gpu_blocks": 8, "blocksize": 4}},
            "config: there is no setting 'blocksize': did you mean block_size?",
        ),
        (
            workload() | {"config": {"num_gpu_blocks": 8, "connector": True}},
            "config: connector must be false: scenarios with a KV connector cannot be simulated yet",
        ),
        (workload(prompt_tokens=[1]), "request 'a': there is no key 'prompt_tokens': did you mean 'prompt_token_ids'?"),
        (workload(prompt_token_ids=[]), "request 'a': prompt_token_ids must have at least one token"),
        (workload(prompt_token_ids="ab"), "request 'a': Expected `array`, got `str` at `prompt_token_ids`"),
        (workload(max_tokens=0), "request 'a': max_tokens must be at least 1, not 0"),
        (workload(arrival_step=-1), "request 'a': arrival_step must be at least 0, not -1"),
        (
            workload(cancel_mid=True),
            "request 'a': cancel_mid needs a cancel_step: the step that executes when it is aborted",
        ),
        (workload(prompt_token_ids=[-1]), "request 'a': prompt_token_ids: -1 is no token id (0 to 4294967295)"),
        (
            workload(max_tokens=5),
            "request 'a': output_token_ids has 2 tokens, but up to 5 may be sampled; give as many as max_tokens",
        ),
        (workload(id=""), "request '': id must not be empty"),
        *(
            (workload(**{name: 1 << 63}), f"request 'a': {name} must be at most {MAX} either way, not {1 << 63}")
            for name in ("arrival_step", "cancel_step", "priority", "max_tokens")
        ),
        (
            workload(arrival_time=float("inf")),
            "request 'a': arrival_time must be a time in seconds, not inf",
        ),
        (
            workload() | {"config": {"num_gpu_blocks": 4_194_305}},
            "config: num_gpu_blocks must be at most 4,194,304 (block 0 is the null block and is never used), "
            "not 4194305",
        ),
        (
            workload() | {"config": {"num_gpu_blocks": 8, "max_num_batched_tokens": 1 << 31}},
            "config: max_num_batched_tokens must be at most 2,147,483,647, not 2147483648",
        ),
        (
            workload() | {"requests": workload()["requests"] * 2},
            "two requests have the id 'a'; ids must differ",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(data: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_scenario(data)
    assert caught.value.message == message


def test_a_stop_token_shortens_what_a_script_needs() -> None:
    assert parse_scenario(workload(max_tokens=50, stop_token_ids=[4])).requests[0].output_token_ids == (3, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("{", "is not JSON"),
        (json.dumps({"workload": 1}), "a scenario is an object"),
        ('{"name": "' + "\\ud800" + '"}', r"is not JSON: \\ud800 is half a character"),
        ('{"max_steps": NaN}', "is not JSON: NaN is no number of JSON"),
        ('{"max_steps": 1e999}', "is not JSON: "),
        ("[" * 100_000, "is not JSON: it is nested too deep"),
        ("9" * 5_000, "is not JSON: Exceeds the limit"),
    ],
)
def test_a_file_that_is_no_scenario_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=message) as caught:
        load_scenario(path)
    assert str(path) in caught.value.message
