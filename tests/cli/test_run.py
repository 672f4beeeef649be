"""`kvscope run`: answers on stdout, the rest on stderr, and one line for everything that can be wrong."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from kvscope.analysis import setting_words
from kvscope.engine.model import catalogue
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.request import SamplingParams
from kvscope.replay import open_recording
from tests.cli.command_line import CommandLine
from tests.engine.model.families import FAMILIES
from tests.engine.model.test_decoder import write_folder

TOY = ("--model", "toy", "--dtype", "float32")
TIMEOUT_S = 110
KVSCOPE = (sys.executable, "-c", "from kvscope.cli.main import main; main()")


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


def query(recording: Path, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def test_every_setting_of_scheduler_and_sampling_is_an_option_by_its_name(kvscope: CommandLine) -> None:
    settings = {field.name for kind in (SchedulerConfig, SamplingParams) for field in fields(kind)}
    options = set(setting_words.SCHEDULER_HELP) | set(setting_words.SAMPLING_HELP)
    assert options == settings - set(setting_words.WITHOUT_OPTION)
    shown = kvscope("run", "--help").out
    assert [name for name in options if f"--{name.replace('_', '-')} " not in shown] == []


def test_one_prompt_prints_the_answer_alone_and_records_every_step(kvscope: CommandLine) -> None:
    outcome = kvscope("run", *TOY, "--raw", "hello", "--max-tokens", "5", "--ignore-eos", "--record", "r.db")
    assert outcome.exit_code == 0
    assert outcome.out.endswith("\n")
    assert len(outcome.out) <= 6
    assert outcome.err.splitlines() == [
        "runs on: cpu, torch's kernels (kvscope's own kernels have no float32)",
        "sampling: temperature 0, ignore_eos true, max_tokens 5",
        f"5 steps recorded in {kvscope.folder / 'r.db'}",
    ]
    assert query(kvscope.folder / "r.db", "select prompt, num_output_tokens, finish_reason from requests") == [
        ("hello", 5, "length")
    ]
    assert query(kvscope.folder / "r.db", "select device, kernels from engine_configured") == [("cpu", "torch")]
    assert [path.name for path in kvscope.folder.iterdir()] == ["r.db"]


def test_the_default_model_knows_the_capital_of_france(tmp_path: Path) -> None:
    """The README's command, in a process of its own; fetches the model where this machine has not got it yet."""
    catalogue.fetch(catalogue.find_entry("smollm2-135m"))
    question = "What is the capital of France? Answer in one sentence."
    options = ["--chat", question, "--dtype", "float32", "--temperature", "0", "--record", str(tmp_path / "r.db")]
    answer = subprocess.run([*KVSCOPE, "run", *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert answer.stdout == "The capital of France is Paris.\n"
    assert answer.stderr.splitlines() == [
        "runs on: cpu, torch's kernels (kvscope's own kernels have no float32)",
        "sampling: temperature 0, max_tokens 256",
        f"8 steps recorded in {tmp_path / 'r.db'}",
    ]


def test_json_gives_one_line_a_request_in_the_order_of_the_prompts(kvscope: CommandLine) -> None:
    (kvscope.folder / "prompts.txt").write_text("the same long beginning, then b\n\nc\n")
    outcome = kvscope(
        *("run", *TOY, "--json", "--raw", "--no-record", "--ignore-eos", "--max-tokens", "4", "--logprobs", "2"),
        *("the same long beginning, then a", "--prompts-file", "prompts.txt"),
    )
    assert outcome.exit_code == 0
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert [line["id"] for line in lines] == ["req-1", "req-2", "req-3"]
    first = lines[0]
    assert first["prompt_token_ids"] == [256, *b"the same long beginning, then a"]
    assert len(first["output_token_ids"]) == 4
    assert (first["finish_reason"], first["stop_reason"]) == ("length", None)
    assert [line["num_hit_tokens"] for line in lines] == [0, 16, 0]
    assert [(line["ttft_ms"] > 0, len(line["itl_ms"])) for line in lines] == [(True, 3)] * 3
    assert [len(token["top"]) for token in first["logprobs"]] == [2, 2, 2, 2]
    assert not list(kvscope.folder.glob("**/*.db"))


def test_several_answers_stand_under_their_prompts(kvscope: CommandLine) -> None:
    arguments = ("run", *TOY, "--raw", "--ignore-eos", "--max-tokens", "3", "--no-record")
    alone = kvscope(*arguments, "one\x1b[31m").out
    both = kvscope(*arguments, "one\x1b[31m", "two").out
    first, rest = both.split("\n\n", 1)
    assert first == f"[req-1] one␛[31m\n{alone.rstrip()}"
    assert rest.startswith("[req-2] two\n")


def test_without_record_a_new_file_is_made_in_the_data_folder(kvscope: CommandLine) -> None:
    outcome = kvscope("run", *TOY, "hello", "--max-tokens", "1")
    (recording,) = (kvscope.folder / "recordings").iterdir()
    assert recording.name.endswith("-toy.db")
    assert outcome.err.splitlines()[-1] == f"1 step recorded in {recording}"


def test_a_recording_is_only_replaced_by_force(kvscope: CommandLine) -> None:
    (kvscope.folder / "r.db").write_text("precious")
    arguments = ("run", *TOY, "hello", "--max-tokens", "2", "--record", "r.db")
    outcome = kvscope(*arguments)
    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err == (
        f"kvscope: {kvscope.folder / 'r.db'} exists already: name another file, or replace it with --force\n"
    )
    assert (kvscope.folder / "r.db").read_text() == "precious"
    assert kvscope(*arguments, "--force").exit_code == 0
    assert query(kvscope.folder / "r.db", "select count(*) from requests") == [(1,)]


def test_the_invariants_are_checked_on_request(kvscope: CommandLine) -> None:
    outcome = kvscope(
        *("run", *TOY, "--check", "--record", "r.db", "--num-gpu-blocks", "10", "--max-num-batched-tokens", "16"),
        *("--ignore-eos", "--max-tokens", "60", "--raw", "one", "two", "three"),
    )
    assert (outcome.exit_code, outcome.err.splitlines()[-1]) == (0, "every invariant holds in every step")
    ((num_preemptions,),) = query(kvscope.folder / "r.db", "select sum(num_preemptions) from requests")
    assert isinstance(num_preemptions, int)
    assert num_preemptions > 0


def test_settings_reach_the_scheduler_and_the_requests(kvscope: CommandLine) -> None:
    kvscope(
        *("run", *TOY, "--record", "r.db", "--policy", "priority", "--block-size", "8", "--max-num-seqs", "3"),
        *("--no-enable-prefix-caching", "--watermark", "0.1", "--max-model-len", "100", "--num-gpu-blocks", "50"),
        *(
            "--top-p",
            "0.5",
            "--temperature",
            "0.7",
            "--seed",
            "3",
            "--stop",
            "a",
            "--stop",
            "b",
            "--stop-token-ids",
            "9",
        ),
        *("--priority", "4", "--cache-salt", "mine", "--max-tokens", "2", "hello"),
    )
    with contextlib.closing(open_recording(kvscope.folder / "r.db")) as recording:
        assert recording.config is not None
        settings = recording.config.settings
    changed = {
        "policy": "priority",
        "block_size": 8,
        "max_num_seqs": 3,
        "enable_prefix_caching": False,
        "watermark": 0.1,
        "max_model_len": 100,
        "num_gpu_blocks": 50,
    }
    assert settings == SchedulerConfig(num_gpu_blocks=2).as_settings() | changed
    ((sampling, priority, salt),) = query(
        kvscope.folder / "r.db", "select sampling, priority, cache_salt from requests"
    )
    assert json.loads(str(sampling)) == {
        "temperature": 0.7,
        "top_p": 0.5,
        "seed": 3,
        "stop": ["a", "b"],
        "stop_token_ids": [9],
        "max_tokens": 2,
    }
    assert (priority, salt) == (4, "mine")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        ((), 2, "there is no prompt: give one, or --prompts-file with one a line (kvscope live is the screen)"),
        (("",), 2, "prompt 1 of 1 is empty: give at least one word"),
        (("a", " "), 2, "prompt 2 of 2 is empty: give at least one word"),
        (("--prompts-file", "no.txt"), 2, "cannot read prompts from no.txt: No such file or directory"),
        (("a", "--raw", "--system", "s"), 2, "--system needs --chat: a raw prompt has no system prompt"),
        (("a", "--temperature", "-1"), 2, "temperature must be at least 0 (0 is greedy), not -1.0"),
        (("a", "--policy", "lifo"), 2, "policy must be fcfs or priority, not 'lifo'"),
        (("a", "--watermark", "2"), 2, "watermark must be at least 0 and below 1, not 2.0"),
        (("a", "--num-gpu-blocks", "1"), 2, "num_gpu_blocks must be at least 2 (block 0 is the null block"),
        (
            ("a", "--max-num-batched-tokens", "4", "--max-num-seqs", "8"),
            2,
            "max_num_batched_tokens (4) must be at least max_num_seqs (8): each running sequence needs a token a step",
        ),
        (
            ("a" * 40, "--max-model-len", "32"),
            2,
            "the prompt has 42 tokens, max_model_len (32) allows 31 and one of output: shorten the prompt, "
            "or raise max_model_len if the model allows more",
        ),
        (("a", "--max-model-len", "5000"), 2, "max_model_len (5000) is more than toy was made for (4096)"),
        (("a", "--model", "smollm2-135m"), 4, "smollm2-135m"),
        (("a", "--device", "gpu"), 2, "--device must be cpu, cuda or cuda:1, not 'gpu'"),
        (("a", "--device", "cpu:\x1b"), 2, "--device must be cpu, cuda or cuda:1, not 'cpu:\\x1b'"),
        (("a", "--priority", str(1 << 63)), 2, "priority must be at most 9,223,372,036,854,775,807 either way, not "),
        (("a", "--cache-salt", "\udcff"), 2, "cache_salt has bytes that are no UTF-8 text: '\\udcff'"),
        (("a", "--stop", "\udcff"), 2, "stop strings have bytes that are no UTF-8 text: ['\\udcff']"),
        (("a", "--stop-token-ids", str(1 << 32)), 2, "stop_token_ids must be from 0 to 4,294,967,295, not "),
        (("a", "--seed", str(1 << 63)), 2, "seed must be at most 9,223,372,036,854,775,807, not "),
        (("a", "--model", "~nobody-is-called-so/m"), 2, "there is no home folder of nobody-is-called-so"),
        (("a", "--kernels", "cuda"), 2, "--kernels must be one of triton, native, torch, not 'cuda'"),
        (("a", "--kernels", "triton"), 5, "--kernels triton: they do not run on cpu; take --kernels torch"),
        (("a\udcff",), 2, "the prompt has bytes that are no UTF-8 text: check the terminal's encoding"),
        (("a", "--record", "."), 2, "is a folder: name a file for the recording"),
        (("a", "--top-q", "1"), 2, "No such option: --top-q"),
        (("a", "--top-k", "x"), 2, "Invalid value for '--top-k'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(
    kvscope: CommandLine, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    outcome = kvscope("run", *TOY, *arguments)
    assert (outcome.exit_code, outcome.out) == (exit_code, "")
    lines = [
        line
        for line in outcome.err.splitlines()
        if "recorded in" not in line and line[:8] not in ("sampling", "runs on:")
    ]
    assert len(lines) == 1
    assert lines[0].startswith("kvscope: ")
    assert message in lines[0]


def test_a_request_that_fits_no_pool_is_refused_and_the_others_are_answered(kvscope: CommandLine) -> None:
    """It waited for ever before the others, and ended them with itself."""
    options = ("--num-gpu-blocks", "5", "--ignore-eos", "--max-tokens", "3", "--record", "r.db", "--json")
    outcome = kvscope("run", *TOY, "--raw", "one", "x" * 70, "three", *options)
    assert outcome.exit_code == 2
    assert [json.loads(line)["finish_reason"] for line in outcome.out.splitlines()] == ["length", "length"]
    assert outcome.err.splitlines()[2] == (
        "kvscope: prompt 2 of 3: the prompt has 71 tokens, max_model_len (64) allows 63 and one of output: shorten the "
        "prompt, or raise max_model_len if the model allows more"
    )
    assert query(kvscope.folder / "r.db", "select request_id, finish_reason from requests order by 1") == [
        ("req-1", "length"),
        ("req-2", "rejected"),
        ("req-3", "length"),
    ]


def test_a_request_that_waits_for_ever_is_aborted_alone(kvscope: CommandLine) -> None:
    """`max_model_len` was asked for, so it is let in; those behind it go on when it is gone."""
    options = ("--num-gpu-blocks", "5", "--max-model-len", "200", "--ignore-eos", "--max-tokens", "3")
    outcome = kvscope("run", *TOY, "--raw", "one", "x" * 70, "three", "y" * 80, *options, "--record", "r.db")
    assert outcome.exit_code == 5
    assert outcome.out.count("[req-") == 4
    *_, where, first, second = outcome.err.splitlines()
    assert where.endswith(f" recorded in {kvscope.folder / 'r.db'}")
    assert first.startswith("kvscope: req-2 can never go on: its 71 tokens fill 5 blocks of 16, the pool has 4;")
    assert second.startswith("kvscope: req-4 can never go on: its 81 tokens fill 6 blocks of 16, the pool has 4;")
    assert query(kvscope.folder / "r.db", "select finish_reason from requests order by request_id") == [
        ("length",),
        ("abort",),
        ("length",),
        ("abort",),
    ]


def test_a_models_recommendation_is_named_and_taken_on_request(tmp_path: Path, kvscope: CommandLine) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    write_folder(folder, FAMILIES["llama2"])
    (folder / "generation_config.json").write_text('{"temperature": 0.6, "top_p": 0.9, "max_new_tokens": 9}')
    arguments = ("run", "--model", str(folder), "--raw", "a", "--max-tokens", "1", "--no-record")
    assert kvscope(*arguments).err == (
        "runs on: cpu, torch's kernels (kvscope's own kernels have no float32)\n"
        "sampling: temperature 0, max_tokens 1; the model recommends temperature 0.6, top_p 0.9 "
        "(--generation-config auto)\n"
    )
    assert kvscope(*arguments, "--generation-config", "auto", "--top-p", "0.5").err == (
        "runs on: cpu, torch's kernels (kvscope's own kernels have no float32)\n"
        "sampling: temperature 0.6, top_p 0.5, max_tokens 1\n"
    )
    assert kvscope(*arguments, "--generation-config", "model").err == (
        "kvscope: generation_config must be vllm or auto, not 'model'\n"
    )


def test_a_missing_engine_extra_is_one_line(kvscope: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.session.build.ENGINE_EXTRA", ("torch", "no_such_package_here"))
    outcome = kvscope("run", *TOY, "hello")
    assert (outcome.exit_code, outcome.out) == (5, "")
    assert outcome.err == (
        "kvscope: running a model needs no_such_package_here: pip install 'kvscope[engine]' (recordings open without)\n"
    )


def test_ctrl_c_aborts_closes_the_recording_and_exits_with_130(tmp_path: Path) -> None:
    recording = tmp_path / "r.db"
    command = [*KVSCOPE, "run", *TOY, "--raw", "hello"]
    options = ["--ignore-eos", "--max-tokens", "4000", "--record", str(recording)]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    process.stdout.read(1)  # the answer has begun
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert err.endswith(f"steps recorded in {recording}\n")
    assert query(recording, "select finish_reason from requests") == [("abort",)]
    assert query(recording, "select value from meta where key = 'closed'") == [("1",)]


def test_a_workload_is_fitted_to_the_engine_run_and_told(kvscope: CommandLine) -> None:
    options = ("--num-gpu-blocks", "25", "--max-num-batched-tokens", "40", "--record", "r.db", "--json", "--check")
    outcome = kvscope("run", *TOY, "--workload", "preemption-storm", "--figure", "num-requests=8", *options)
    lines = outcome.err.splitlines()
    assert (outcome.exit_code, lines[-1]) == (0, "every invariant holds in every step")
    answered = [json.loads(line)["id"] for line in outcome.out.splitlines()]
    assert answered == [f"storm-{number}" for number in range(1, 9)]
    sql = "select count(*), sum(num_lost_tokens) from request_preempted"
    ((num_preemptions, num_lost_tokens),) = query(kvscope.folder / "r.db", sql)
    assert isinstance(num_preemptions, int)
    assert num_preemptions > 1
    figures, foretold = lines[2:4]
    assert figures == "preemption_storm: num_requests 8, num_prompt_tokens 16, num_output_tokens 64, seed 0"
    assert f"{num_preemptions} preemptions that throw away {num_lost_tokens} computed tokens" in foretold


def test_a_workload_that_a_setting_is_in_the_way_of_names_it(kvscope: CommandLine) -> None:
    storm = ("--workload", "preemption_storm", "--figure", "num_requests=2", "--figure", "num_output_tokens=2")
    outcome = kvscope("run", *TOY, "--no-record", "--num-gpu-blocks", "100", *storm, "--figure", "num_prompt_tokens=16")
    assert outcome.exit_code == 0
    assert outcome.err.splitlines()[-1] == (
        "with these settings it brings about no preemptions; num_gpu_blocks 3 would"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--workload", "storm"),
            "there is no workload 'storm': shared_prefix, long_prefill,",
        ),
        (("--workload", "random_mix", "hello"), "--workload makes its own prompts: give a workload or prompts"),
        (("--workload", "random_mix", "--figure", "seed"), "--figure seed: write it as NAME=VALUE"),
        (("--workload", "random_mix", "--figure", "sed=1"), "random_mix has no figure 'sed': did you mean seed?"),
        (("--workload", "random_mix", "--figure", "num_requests=1"), "num_requests: at least 2, not 1"),
    ],
)
def test_a_workload_that_cannot_be_is_said_in_one_line(
    kvscope: CommandLine, arguments: tuple[str, ...], message: str
) -> None:
    outcome = kvscope("run", *TOY, "--no-record", *arguments)
    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1].startswith(f"kvscope: {message}")
