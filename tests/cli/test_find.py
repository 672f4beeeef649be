"""`kvscope find`: the steps at which a breakpoint stops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.runs import preempting
from tests.cli.command_line import CommandLine
from tests.recording.runs import record


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    record(tmp_path / "run.db", preempting().sink.steps)
    return CommandLine(tmp_path, monkeypatch, capsys)


def test_it_prints_the_steps_that_stop_and_for_whom(kvscope: CommandLine) -> None:
    outcome = kvscope("find", "run.db", "finished")
    assert (outcome.exit_code, outcome.out, outcome.err) == (0, "     2\n     3\n     4\n", "")
    outcome = kvscope("find", "run.db", "finished and output_tokens > 0")
    assert outcome.out == "     2  a\n     3  c\n     4  b\n"


def test_as_json_only_the_first_or_the_last_and_in_a_range(kvscope: CommandLine) -> None:
    found = [json.loads(line) for line in kvscope("find", "run.db", "finished", "--json").out.splitlines()]
    assert found == [{"step": step, "request_ids": []} for step in (2, 3, 4)]
    assert kvscope("find", "run.db", "finished", "--first").out == "     2\n"
    assert kvscope("find", "run.db", "finished", "--last").out == "     4\n"
    assert kvscope("find", "run.db", "finished", "--from", "3", "--to", "3").out == "     3\n"


def test_nothing_found_is_exit_code_1(kvscope: CommandLine) -> None:
    outcome = kvscope("find", "run.db", "failed")
    assert (outcome.exit_code, outcome.out, outcome.err) == (1, "", "")


def test_what_is_wrong_with_a_condition_is_said_with_its_place(kvscope: CommandLine) -> None:
    outcome = kvscope("find", "run.db", "preempted and free_block < 4")
    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err == "kvscope: column 15: there is no field free_block: did you mean free_blocks?\n"
    assert kvscope("find", "run.db").err == (
        "kvscope: find needs a recording and a condition, like: kvscope find run.db 'free_blocks < 4'\n"
    )


def test_every_field_is_listed(kvscope: CommandLine) -> None:
    out = kvscope("find", "--fields").out.splitlines()
    assert out[0] == "of the step"
    assert "  refused_by        the test that refused it as the head of the queue: preempted budget empty" in "\n".join(
        out
    )
