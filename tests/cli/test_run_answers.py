"""`stats`, `diff` and `whatif` as commands: figures, exit codes, 80 columns, one-line errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.engine.scheduling.scripted_run import ScriptedRun
from kvscope.recording.recorder import Recorder
from tests.analysis.test_whatif import timed
from tests.builders import scenario
from tests.cases import cases
from tests.cli.command_line import CommandLine


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


def record_case(name: str, path: str, **settings: Any) -> None:
    workload = cases()[name]["workload"]
    workload = {**workload, "config": {**workload["config"], **settings}}
    with Recorder(path) as recorder:
        ScriptedRun(parse_scenario(workload), recorder).run()


def record_timed(path: str) -> None:
    made = scenario(budget=32, max_model_len=64)
    made.request("a", "a" * 20, reply="1" * 12).request("b", "b" * 30, reply="2" * 8, at=3)
    timeline = timed(made.run().sink.steps)
    with Recorder(path) as recorder:
        for step, events in timeline.events(0, timeline.last_step):
            recorder.write_step(step, events)


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


COMMANDS = [
    ("stats", "c09.db", "--requests", "--by", "length"),
    ("stats", "c09.db", "timed.db", "--histogram", "ttft", "--by", "salt"),
    ("whatif", "c09.db"),
    ("whatif", "c09.db", "--set", "num_gpu_blocks=30", "--set", "watermark=0.05"),
    ("whatif", "timed.db", "--set", "max_num_batched_tokens=8", "--set", "max_num_seqs=4"),
    ("whatif", "c09.db", "--sweep", "num_gpu_blocks=20,42,83"),
    ("whatif", "timed.db", "--sweep", "batching=static,exclusive,unified"),
    ("diff", "c09.db", "other.db"),
    ("diff", "c09.db", "--steps", "20", "45"),
    ("diff", "c09.db", "timed.db"),
]


def test_every_answer_fits_80_columns(kvscope: CommandLine) -> None:
    record_case("c09_preempt_cycle", "c09.db")
    record_case("c09_preempt_cycle", "other.db", watermark=0.1)
    record_timed("timed.db")
    for command in COMMANDS:
        outcome = kvscope(*command)
        assert outcome.err == ""
        assert outcome.out
        assert widest(outcome.out) <= 80, command
        assert json.loads(kvscope(*command[:1], *command[1:], "--json").out.splitlines()[0])


def test_whatif_says_what_a_setting_changes(kvscope: CommandLine) -> None:
    record_case("c09_preempt_cycle", "c09.db")
    text = kvscope("whatif", "c09.db", "--set", "num_gpu_blocks=83").out
    assert "Check: its own settings repeat the recording, all 86 steps, event for event." in text
    assert "First difference in step 4:" in text
    assert "preemptions                           7        0      −7" in text
    found = json.loads(kvscope("whatif", "c09.db", "--set", "num_gpu_blocks=83", "--json").out)
    assert found["changed_settings"] == {"num_gpu_blocks": {"from": 42, "to": 83}}
    assert found["preemptions"]["base_list"] == [
        [4, "x"],
        [12, "c5"],
        [16, "c5"],
        [22, "c5"],
        [32, "c5"],
        [38, "x"],
        [50, "c5"],
    ]


def test_whatif_says_that_other_blocks_make_another_pool(kvscope: CommandLine) -> None:
    record_case("c09_preempt_cycle", "c09.db")
    text = kvscope("whatif", "c09.db", "--set", "block_size=8").out
    assert (
        "! The pool keeps its 41 blocks and holds 328 tokens instead of 164; add --set\n"
        "  num_gpu_blocks=21 to keep its size.\n"
    ) in text
    assert "! The pool" not in kvscope("whatif", "c09.db", "--set", "block_size=8", "--set", "num_gpu_blocks=21").out


def test_whatif_writes_the_changed_run_as_a_recording_that_diff_compares(kvscope: CommandLine) -> None:
    record_case("c09_preempt_cycle", "c09.db")
    record_case("c09_preempt_cycle", "real.db", watermark=0.1)
    assert kvscope("whatif", "c09.db", "--set", "watermark=0.1", "--record", "predicted.db").exit_code == 0
    assert kvscope("diff", "predicted.db", "real.db").exit_code == 0
    outcome = kvscope("diff", "c09.db", "predicted.db", "--json")
    assert outcome.exit_code == 1
    found = json.loads(outcome.out)
    assert found["settings"] == {"watermark": {"a": 0.0, "b": 0.1}}
    assert found["first_step_that_decides_differently"] == 14


def test_estimates_are_marked_and_the_fit_has_its_error(kvscope: CommandLine) -> None:
    record_timed("timed.db")
    text = kvscope("whatif", "timed.db", "--set", "max_num_batched_tokens=16").out
    assert "Every time below is an estimate" in text.replace("\n  ", " ")
    assert "Step time ≈ 1.000 ms + 10.00 µs a prefill token + 200.00 µs a decode" in text
    assert "off by 0.0% at the median" in text
    assert "ms, estimated" in text
    assert json.loads(kvscope("whatif", "timed.db", "--set", "block_size=8", "--json").out)["latencies"]["is_estimate"]


def test_stats_json_has_the_case_figures(kvscope: CommandLine) -> None:
    record_case("c13_self_vs_cross", "c13.db")
    answer = cases()["c13_self_vs_cross"]["answer"]
    found = json.loads(kvscope("stats", "c13.db", "--json").out)
    assert found["unit"] == "steps"
    assert found["hits"]["num_own_hit_tokens"] == answer["self_hit_tokens"]
    assert found["hits"]["num_other_hit_tokens"] == answer["cross_hit_tokens"]
    assert {request["id"]: request["num_recomputed_tokens"] for request in found["requests"]} == answer["recomputed"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("whatif", "c09.db", "--set", "max_seqs=3"), "there is no setting 'max_seqs': did you mean max_num_seqs?"),
        (("whatif", "c09.db", "--set", "watermark"), "--set watermark: write it as NAME=VALUE"),
        (("whatif", "c09.db", "--set", "batching=dynamic"), "batching must be unified or static or exclusive"),
        (("whatif", "c09.db", "--sweep", "watermark"), "--sweep watermark: write it as NAME=A,B,C"),
        (("whatif", "c09.db", "--arrivals", "time"), "--arrivals time needs a run with a clock"),
        (("diff", "c09.db"), "1 recording: name two recordings, or one with --steps A B"),
        (("diff", "c09.db", "--steps", "0", "99"), "there is no step 99 in c09.db: it has steps 0 to 85"),
        (("stats", "c09.db", "--by", "colour"), "--by colour: group by priority, salt, adapter, length"),
        (("stats", "none.db"), "there is no file none.db"),
    ],
)
def test_a_wrong_command_is_one_line_that_says_what_to_do(
    kvscope: CommandLine, command: tuple[str, ...], message: str
) -> None:
    record_case("c09_preempt_cycle", "c09.db")
    outcome = kvscope(*command)
    assert outcome.exit_code in (2, 3)
    assert outcome.err.count("\n") == 1
    assert message in outcome.err


def test_models_show_reads_the_shape_alone(kvscope: CommandLine) -> None:
    outcome = kvscope("models", "show", "toy", "--max-model-len", "1024")
    assert outcome.exit_code == 0
    assert widest(outcome.out) <= 80
    # 2 × 2 layers × 2 heads × 16 × 8 bytes.
    assert "= 1,024 bytes" in outcome.out
    found = json.loads(kvscope("models", "show", "toy", "--dtype", "float16", "--json").out)
    assert (found["kv_bytes_per_token"], found["max_model_len"]) == (256, 4096)
    assert found["rows"][-1]["paged_bytes"] == {"1": 1 << 20, "8": 8 << 20, "32": 32 << 20, "128": 128 << 20}
    assert "choose auto, float64" in kvscope("models", "show", "toy", "--dtype", "int4").err
