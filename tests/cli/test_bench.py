"""`kvscope bench scheduler`: its figures have the shape that is promised; no figure is judged here."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from kvscope.session import bench_scheduler
from kvscope.session.bench_scheduler import Case, CaseTimes
from tests.cli.command_line import CommandLine


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setattr(bench_scheduler, "CASES", (Case("3 decode", 3), Case("3 decode, hits", 3, num_admissions=2)))
    return CommandLine(tmp_path, monkeypatch, capsys)


def test_json_has_a_line_a_case_and_a_figure_a_round(kvscope: CommandLine) -> None:
    outcome = kvscope("bench", "scheduler", "--pairs", "2", "--steps", "10", "--json")
    assert (outcome.exit_code, outcome.err) == (0, "")
    for line, name in zip(outcome.out.splitlines(), ("3 decode", "3 decode, hits"), strict=True):
        result = json.loads(line)
        assert (result["case"], len(result["off_us"]), len(result["recording_us"])) == (name, 2, 2)
        assert min(result["off_us"] + result["recording_us"]) > 0
        assert "vllm_us" not in result
        assert result["machine"]["versions"]["python"] == platform.python_version()


def test_the_table_has_a_row_a_case(kvscope: CommandLine) -> None:
    outcome = kvscope("bench", "scheduler", "--pairs", "1", "--steps", "10")
    assert [line.split("  ")[0] for line in outcome.out.splitlines()[2:]] == [
        "µs of CPU time a step",
        "3 decode",
        "3 decode, hits",
    ]


def test_an_interpreter_that_is_not_there_is_one_line(kvscope: CommandLine) -> None:
    outcome = kvscope("bench", "scheduler", "--vllm", "/nowhere/python")
    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err == (
        "kvscope: --vllm /nowhere/python: No such file or directory; give a Python interpreter that has vLLM\n"
    )


def test_ratios_are_taken_round_by_round() -> None:
    times = CaseTimes(Case("x", 1), off_us=[1.0, 3.0], on_us=[2.0, 4.0], vllm_us=[4.0, 6.0])
    assert (times.ratios("off"), times.ratios("on")) == ([0.25, 0.5], [0.5, 4.0 / 6.0])
