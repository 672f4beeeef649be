"""`kvscope check`: recordings that were tampered with are found out."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from kvscope import events as ev
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.recording.layouts import KIND_OF
from kvscope.session.simulation import simulate
from tests.cli.command_line import CommandLine
from tests.golden import golden_runs


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


def record(kvscope: CommandLine, name: str = "run.db", sql: str = "") -> None:
    """Records a run with hits, evictions and preemptions, and runs `sql` over the file."""
    simulate(parse_scenario(golden_runs("random")["rand1004"]), recording=kvscope.folder / name)
    if sql:
        with contextlib.closing(sqlite3.connect(kvscope.folder / name)) as connection:
            connection.executescript(sql)
            assert connection.total_changes > 0


def checks(out: str) -> set[str]:
    """Returns the names of the violated checks of `--json --all`."""
    return {violation["check"] for violation in json.loads(out)["violations"]}


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("UPDATE steps SET num_running = num_running + 1 WHERE step = 7", "step_rows_equal_their_events"),
        ("UPDATE steps SET num_decode_tokens = num_decode_tokens + 1 WHERE step = 9", "step_rows_equal_their_events"),
        ("UPDATE requests SET num_preemptions = 9 WHERE request_id = 'r00'", "request_rows_equal_their_events"),
        ("UPDATE requests SET num_hit_tokens = 400 WHERE request_id = 'r08'", "request_rows_equal_their_events"),
        ("UPDATE requests SET finish_reason = 'stop' WHERE request_id = 'r00'", "request_rows_equal_their_events"),
    ],
)
def test_a_row_that_contradicts_the_events_is_a_violation(kvscope: CommandLine, sql: str, name: str) -> None:
    record(kvscope, sql=sql)
    outcome = kvscope("check", "run.db", "--all", "--json")
    assert outcome.exit_code == 1
    assert checks(outcome.out) == {name}


FORGET_A_RELEASE = f"DELETE FROM events WHERE kind = {KIND_OF[ev.BlockReleased]} AND step = 17;"
HIDE_IT = "UPDATE steps SET num_events = num_events - 1 WHERE step = 17;"


def test_an_event_that_is_missing_is_found(kvscope: CommandLine) -> None:
    record(kvscope, sql=FORGET_A_RELEASE)
    outcome = kvscope("check", "run.db")
    assert outcome.exit_code == 1
    assert outcome.out == (
        "run.db: violation of the_recording_can_be_read in step 17: "
        "run.db: step 17 holds 11 of its 12 events; the recording is damaged\n"
    )


def test_an_event_whose_absence_was_hidden_is_found(kvscope: CommandLine) -> None:
    record(kvscope, sql=FORGET_A_RELEASE + HIDE_IT)
    outcome = kvscope("check", "run.db")
    assert outcome.exit_code == 1
    assert outcome.out.startswith(
        "run.db: violation of ended_requests_own_nothing in step 17: r02 has ended and holds "
    )
    assert len(outcome.out.splitlines()) == 1


def test_every_file_is_checked_and_one_fault_is_enough(kvscope: CommandLine) -> None:
    record(kvscope, "bad.db", sql="UPDATE steps SET num_waiting = 99 WHERE step = 3")
    record(kvscope, "good.db")
    outcome = kvscope("check", "bad.db", "good.db")
    first, second = outcome.out.splitlines()
    assert first.startswith("bad.db: violation of step_rows_equal_their_events in step 3: the row says 99 waiting")
    assert second == "good.db: every invariant holds in all 92 steps"
    assert outcome.exit_code == 1


def test_a_file_that_is_no_recording_is_one_line(kvscope: CommandLine) -> None:
    (kvscope.folder / "notes.txt").write_text("no recording")
    outcome = kvscope("check", "notes.txt")
    assert (outcome.exit_code, outcome.out, len(outcome.err.splitlines())) == (3, "", 1)
