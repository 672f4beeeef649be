"""`kvscope bench engine`: its figures have the shape that is promised, and peers that fail say why."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kvscope.session import bench_engine
from kvscope.session.bench_engine import Case, Run
from tests.cli.command_line import CommandLine

PEER = """
import json, os, sys
print("a line of its own")
print(json.dumps({"versions": {"peer": "1.2"}}), flush=True)
for line in sys.stdin:
    case = json.loads(line)
    assert sorted(os.listdir(sys.argv[1])) == ["config.json", "model.safetensors"]
    assert len(case["prompts"]) in (1, 3)
    step = {1: 1.0, 2: 0.5}[case["num_threads"]]
    times = [step * (i + 1) for i in range(case["num_tokens"])]
    print(json.dumps({"step_times_s": times, "num_threads": case["num_threads"]}), flush=True)
"""


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setattr(bench_engine, "CASES", (Case("batch 3", 3, 20, 4), Case("prefill 30", 1, 30, 1)))
    monkeypatch.setattr(bench_engine, "script_folder", lambda: tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return CommandLine(tmp_path, monkeypatch, capsys)


ARGUMENTS = ("bench", "engine", "--model", "toy", "--threads", "1", "--pairs", "2")


def test_json_has_a_line_a_case_and_a_figure_a_round(kvscope: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "vllm_engine.py").write_text(PEER)
    outcome = kvscope(*ARGUMENTS, "--threads", "2", "--vllm", sys.executable, "--json")
    assert (outcome.exit_code, outcome.err) == (0, "")
    batch, prefill = (json.loads(line) for line in outcome.out.splitlines())
    assert (batch["case"], batch["peers"]) == ("batch 3", {"vllm": {"peer": "1.2"}})
    assert (batch["model"], batch["dtype"], batch["threads_tried"]) == ("toy", "bfloat16", [1, 2])
    assert batch["execution"].startswith("cpu, torch's kernels")
    expected = {"threads": 2, "tokens_per_s": [6.0, 6.0], "ttft_ms": [500.0, 500.0], "itl_ms": [500.0, 500.0]}
    assert batch["engines"]["vllm"] == expected
    own = batch["engines"]["kvscope"]["tokens_per_s"]
    assert batch["ratios"]["vllm"]["smallest"] == pytest.approx(min(own) / 6.0)
    assert (batch["ratios"]["vllm"]["num_pairs"], len(own)) == (2, 2)
    assert prefill["engines"]["vllm"]["tokens_per_s"] == [60.0, 60.0]
    assert prefill["engines"]["kvscope"]["itl_ms"] == [None, None]


def test_engines_get_the_same_prompts_and_none_twice(kvscope: CommandLine, tmp_path: Path) -> None:
    """Two runs of each case warm up, also where there is one number of threads; then come the rounds."""
    note = f"open({str(tmp_path)!r} + '/' + __file__.split('/')[-1] + '.log', 'a').write(line)\n    case = json"
    peer = PEER.replace("case = json", note)
    for name in ("vllm", "transformers"):
        (tmp_path / f"{name}_engine.py").write_text(peer)
    kvscope(*ARGUMENTS, "--vllm", sys.executable, "--transformers", sys.executable)
    logs = [(tmp_path / f"{name}_engine.py.log").read_text().splitlines() for name in ("vllm", "transformers")]
    vllms, transformers = ([json.loads(line)["prompts"] for line in log] for log in logs)
    assert [len(prompts) for prompts in vllms] == [3, 3, 3, 3, 1, 1, 1, 1]
    assert vllms[2:4] + vllms[6:] == transformers[2:4] + transformers[6:]
    beginnings = [tuple(prompt[:16]) for prompts in vllms for prompt in prompts]
    assert len(set(beginnings)) == len(beginnings)


def test_the_table_has_a_row_an_engine_and_case(kvscope: CommandLine) -> None:
    outcome = kvscope(*ARGUMENTS)
    rows = outcome.out.splitlines()
    reason = "kvscope's own kernels have no head_dim 16: a multiple of 32 is needed"
    assert rows[2] == f"kvscope on cpu, torch's kernels ({reason}); toy, bfloat16"
    assert [row.split("  ")[0] for row in rows[3:]] == ["case", "batch 3", "prefill 30"]


def test_cases_can_be_chosen(kvscope: CommandLine) -> None:
    outcome = kvscope(*ARGUMENTS, "--case", "prefill 30", "--json")
    assert [json.loads(line)["case"] for line in outcome.out.splitlines()] == ["prefill 30"]


def test_a_case_of_no_such_name_is_refused(kvscope: CommandLine) -> None:
    outcome = kvscope(*ARGUMENTS, "--case", "batch 5")
    told = "--case batch 5: there is none of that name; give one of 'batch 3', 'prefill 30'"
    assert (outcome.exit_code, outcome.out, outcome.err) == (2, "", f"kvscope: {told}\n")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; sys.exit('no module named vllm')", "no module named vllm"),
        (PEER.replace('range(case["num_tokens"])', "range(2)"), "transformers took 2 steps for batch 3 instead of 4"),
        (
            PEER.replace('"num_threads": case["num_threads"]', '"num_threads": 4'),
            "transformers computed with 4 threads instead of 1",
        ),
    ],
    ids=["does not start", "took other steps", "took other threads"],
)
def test_a_peer_that_fails_is_one_line(kvscope: CommandLine, tmp_path: Path, script: str, words: str) -> None:
    (tmp_path / "transformers_engine.py").write_text(script)
    outcome = kvscope(*ARGUMENTS, "--transformers", sys.executable)
    assert outcome.exit_code == 2
    assert outcome.err.startswith("kvscope: ")
    assert outcome.err.endswith(f"{words}\n")
    assert len(outcome.err.splitlines()) == 1


def test_figures_of_a_run() -> None:
    run = Run(Case("x", 4, 10, 4), [2.0, 3.0, 5.0, 6.0])
    assert (run.ttft_ms, run.itl_ms, run.tokens_per_s) == (2000.0, 1000.0, 3.0)
    prefill = Run(Case("x", 2, 10, 1), [4.0])
    assert (prefill.ttft_ms, prefill.itl_ms, prefill.tokens_per_s) == (4000.0, None, 5.0)
