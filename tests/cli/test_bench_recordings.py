"""`kvscope bench seek`, `recorder` and `tui` at a small scale: what they say has the promised shape, nothing more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.analysis.check import check_recording
from kvscope.replay import open_recording
from kvscope.session import bench_recording
from kvscope.session.bench_load import ServiceDay
from tests.cli.command_line import CommandLine


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 120 steps of the long recording, with a wave of documents in the middle."""
    path = tmp_path_factory.mktemp("bench") / "short.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServiceDay, "WAVE_EVERY_STEPS", 120)
        patch.setattr(ServiceDay, "NUM_STEADY", 12)
        made = bench_recording.service_day(120, path, on_step=lambda step, num_steps: None)
    assert (made.path, made.num_steps, made.num_requests) == (path, 120, 60)
    return path


def test_the_made_recording_holds_and_is_made_once(recording: Path) -> None:
    with open_recording(recording) as timeline:
        assert list(check_recording(timeline)) == []
        assert timeline.last_step == 119
    again = bench_recording.service_day(120, recording, on_step=lambda step, num_steps: None)
    assert (again.path, again.wall_s, again.num_bytes) == (recording, None, recording.stat().st_size)


def test_seek(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kvscope = CommandLine(tmp_path, monkeypatch, capsys)
    outcome = kvscope("bench", "seek", "--recording", str(recording), "--seeks", "10", "--json")
    assert (outcome.exit_code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert (found["benchmark"], found["num_steps"], len(found["open_ms"])) == ("seek", 120, 5)
    assert {way: times["num_values"] for way, times in found["seek_ms"].items()} == {
        "any": 10, "back": 5, "on": 5, "back10": 5, "on10": 5
    }  # fmt: skip
    assert found["machine"]["num_cores"] >= 1


def test_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kvscope = CommandLine(tmp_path, monkeypatch, capsys)
    options = ("--pairs", "2", "--steps", "10", "--running", "4", "--forward-ms", "0")
    outcome = kvscope("bench", "recorder", *options, "--json")
    assert (outcome.exit_code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert (len(found["on_us"]), len(found["off_us"]), found["on_over_off"]["num_pairs"]) == (2, 2, 2)
    assert found["hand_over_us"]["num_values"] == 20 + 2 * (1 + 10)
    assert found["bytes_per_token"] == round(found["num_bytes"] / found["num_tokens"], 2)


def test_the_screen_is_painted_for_each_key(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kvscope = CommandLine(tmp_path, monkeypatch, capsys)
    options = ("--mode", "long", "--recording", str(recording), "--size", "100x30", "--keys", "10", "--gotos", "1")
    outcome = kvscope("bench", "tui", *options, "--json")
    assert (outcome.exit_code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    latencies = found["latency_ms"]
    assert (found["num_steps"], latencies["keys"]["num_values"], latencies["goto"]["num_values"]) == (120, 10, 1)
    assert found["rss_after_bytes"] > 0


def test_a_size_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = CommandLine(tmp_path, monkeypatch, capsys)("bench", "tui", "--size", "wide")
    assert (outcome.exit_code, outcome.err) == (
        2,
        "kvscope: --size is written as 120x40: columns, an x, rows\n",
    )
