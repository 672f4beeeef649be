"""`kvscope simulate` of traces of real traffic: what they share, when they come, what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.analysis.check import check_recording
from kvscope.replay import open_recording
from kvscope.session.trace import load_trace
from tests.cli.command_line import CommandLine

MOONCAKE = """\
{"timestamp": 5000, "input_length": 1030, "output_length": 3, "hash_ids": [7, 8, 9]}
{"timestamp": 5500, "input_length": 1100, "output_length": 2, "hash_ids": [7, 8, 70000]}
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,4
2023-11-16 18:15:50.9951690,396,2
"""


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    (tmp_path / "chat.jsonl").write_text(MOONCAKE)
    (tmp_path / "azure.csv").write_text(AZURE)
    return CommandLine(tmp_path, monkeypatch, capsys)


def test_equal_ids_are_equal_tokens_up_to_and_including_theirs(kvscope: CommandLine) -> None:
    first, second = load_trace(kvscope.folder / "chat.jsonl")
    assert (first.arrival_s, second.arrival_s) == (0.0, 0.5)
    one, other = first.prompt(), second.prompt()
    assert (len(one), len(other)) == (1030, 1100)
    assert one[:1024] == other[:1024]
    assert one[1024:1026] == [9, 0]
    assert other[1024:1026] == [70_000 - 65_536, 1]
    assert max(one + other) < 65_536


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.jsonl",
            MOONCAKE.replace("5500", "1e16"),
            "a.jsonl: its requests arrive over 9,999,999,999,995 s, at most 3,162,240,000 can be",
        ),
        (
            "a.csv",
            AZURE.replace("396", "100000000000000"),
            "a.csv: request 2 cannot be read (100,000,000,000,000 prompt tokens, at most 67,108,864); a trace has",
        ),
    ],
)
def test_figures_that_no_machine_could_hold_are_told(kvscope: CommandLine, name: str, text: str, message: str) -> None:
    (kvscope.folder / name).write_text(text)
    outcome = kvscope("simulate", name)
    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"kvscope: {message}")
    assert outcome.err.count("\n") == 1


def test_a_step_without_end_is_refused(kvscope: CommandLine) -> None:
    for option in ("--step-ms", "--token-us"):
        assert kvscope("simulate", "azure.csv", option, "inf").exit_code == 2


def test_a_mooncake_trace_hits_what_it_shares(kvscope: CommandLine) -> None:
    """The second request comes half a second later: the first has left its 64 full blocks of 16 tokens."""
    outcome = kvscope("simulate", "chat.jsonl", "--record", "run.db", "--json")
    assert (outcome.exit_code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert found["num_requests"] == 2
    assert (found["num_prompt_tokens"], found["num_output_tokens"], found["num_hit_tokens"]) == (2130, 5, 1024)
    assert found["num_scheduled_tokens"] == 1030 + 2 + 1100 - 1024 + 1
    assert found["num_steps"] == 3 + 2
    assert found["settings"]["max_model_len"] == 1102
    with open_recording(kvscope.folder / "run.db") as timeline:
        assert list(check_recording(timeline)) == []
        assert timeline.last_step == 4


def test_an_azure_trace_shares_nothing(kvscope: CommandLine) -> None:
    outcome = kvscope("simulate", "azure.csv", "--set", "block_size=8", "--step-ms", "10", "--token-us", "0", "--json")
    found = json.loads(outcome.out)
    assert (found["num_requests"], found["num_hit_tokens"], found["num_steps"]) == (2, 0, 6)
    assert found["simulated_s"] == pytest.approx(50.995169 - 46.680590 + 0.02)
    assert found["settings"]["block_size"] == 8


def test_only_the_first_requests(kvscope: CommandLine) -> None:
    outcome = kvscope("simulate", "chat.jsonl", "--requests", "1")
    assert outcome.exit_code == 0
    assert outcome.out.startswith("1 requests, 1,030 prompt and 3 output tokens in 3 steps of 0 s\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]}',
            "1 hash_ids for 513 prompt tokens",
        ),
        ('{"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []}', "0 prompt and 1 output tokens"),
        ("what", "JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(kvscope: CommandLine, line: str, message: str) -> None:
    (kvscope.folder / "bad.jsonl").write_text(MOONCAKE + line + "\n")
    outcome = kvscope("simulate", "bad.jsonl")
    assert outcome.exit_code == 2
    assert outcome.err.startswith(f"kvscope: bad.jsonl: request 3 cannot be read ({message}); a trace has Mooncake's")


def test_a_pool_that_cannot_hold_the_longest_request_is_refused(kvscope: CommandLine) -> None:
    outcome = kvscope("simulate", "chat.jsonl", "--set", "num_gpu_blocks=50")
    assert (outcome.exit_code, outcome.err) == (
        2,
        "kvscope: the longest request of the trace has 1,102 tokens, more than the pool holds (784): "
        "--set num_gpu_blocks=70\n",
    )


def test_what_only_scenarios_have_is_refused(kvscope: CommandLine) -> None:
    outcome = kvscope("simulate", "chat.jsonl", "--dump")
    assert (outcome.exit_code, outcome.out) == (2, "")
