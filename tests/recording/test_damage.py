"""Nothing disappears from a recording unnoticed, and checkpoints only make it quicker."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from kvscope.analysis.check import check_recording
from kvscope.errors import RecordingError
from kvscope.replay import open_recording
from kvscope.replay.dump import dump_steps
from tests.recording.runs import Steps, golden_steps, record

STEPS: Steps = golden_steps("rand1028")


def dumped(path: Path) -> str:
    with open_recording(path) as replay:
        return "\n".join(json.dumps(row) for row in dump_steps(replay.events(replay.first_step, replay.last_step)))


def tampered(path: Path, name: str, sql: str, parameters: tuple[object, ...] = ()) -> Path:
    """Returns a copy over which a statement was run that changed one row at least."""
    copy = path.with_name(name)
    shutil.copy(path, copy)
    connection = sqlite3.connect(copy)
    assert connection.execute(sql, parameters).rowcount > 0
    connection.commit()
    connection.close()
    return copy


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("damage") / "run.db", STEPS)


def test_without_checkpoints_the_dump_is_the_same(path: Path) -> None:
    without = tampered(path, "without.db", "DELETE FROM checkpoints")
    assert dumped(without) == dumped(path)
    with open_recording(without) as replay:
        assert replay.at(replay.last_step).step == len(STEPS) - 1


def test_every_single_event_that_is_deleted_is_missed(tmp_path: Path) -> None:
    path = record(tmp_path / "run.db", golden_steps("s20_cancel", "scenarios"))
    connection = sqlite3.connect(path)
    keys = connection.execute("SELECT step, seq FROM events").fetchall()
    connection.close()
    copy = path.with_name("event.db")
    shutil.copy(path, copy)
    connection = sqlite3.connect(copy, isolation_level=None)
    for step, seq in keys:
        (row,) = connection.execute("SELECT * FROM events WHERE step = ? AND seq = ?", (step, seq)).fetchall()
        connection.execute("DELETE FROM events WHERE step = ? AND seq = ?", (step, seq))
        with open_recording(copy) as replay, pytest.raises(RecordingError, match=rf"step {step} holds \d+ of its"):
            list(replay.events(step, step))
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.close()
    assert dumped(copy) == dumped(path)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("DELETE FROM steps WHERE step = 5", "lacks step 5"),
        ("DELETE FROM steps WHERE step = (SELECT max(step) FROM steps)", "was closed with"),
        ("DELETE FROM sampled_tokens WHERE step = 5", "lacks the sampled tokens of step 5"),
        ("DELETE FROM request_lists", "lacks the list"),
        ("DELETE FROM requests WHERE number = 2", "is damaged|lacks"),
        ("DELETE FROM prompt_tokens WHERE request = 2", "lacks the prompt tokens of request"),
        ("UPDATE events SET kind = 77 WHERE step = 4 AND seq = 1", "event 1 of step 4 is damaged"),
        ("UPDATE events SET data = x'ff' WHERE data IS NOT NULL", "damaged"),
        ("UPDATE events SET request = 'x' WHERE request IS NOT NULL", "damaged"),
        ("UPDATE events SET hashes = x'01' WHERE hashes IS NOT NULL", "damaged"),
        ("UPDATE sampled_tokens SET token_ids = 'text'", "damaged"),
        ("UPDATE sampled_tokens SET token_ids = x'0700'", "damaged"),
        ("UPDATE requests SET sampling = '{'", "damaged"),
    ],
)
def test_damage_is_one_line(path: Path, sql: str, message: str) -> None:
    copy = tampered(path, "damaged.db", sql)
    with pytest.raises(RecordingError, match=message) as caught:
        dumped(copy)
    assert "\n" not in caught.value.message


def test_a_number_that_was_changed_contradicts_the_state(path: Path) -> None:
    copy = tampered(path, "changed.db", "UPDATE events SET a = a + 1 WHERE kind = 10 AND step > 20")
    with pytest.raises(RecordingError, match="does not fit the state before it"):
        dumped(copy)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE checkpoints SET state = x''",
        "UPDATE checkpoints SET state = zeroblob(40)",
        "UPDATE checkpoints SET state = substr(state, 1, length(state) / 2)",
        "UPDATE checkpoints SET state = 'text'",
        "UPDATE checkpoints SET state = x'00' WHERE step % 2",
        "DELETE FROM checkpoints WHERE base_step IS NULL",
        "UPDATE checkpoints SET base_step = 10000 WHERE base_step IS NOT NULL",
    ],
)
def test_damaged_checkpoints_are_passed_over_and_named_by_check(path: Path, sql: str) -> None:
    """Back and forth, each step has the state that the events alone give."""
    copy = tampered(path, "checkpoint.db", sql)
    without = tampered(path, "without.db", "DELETE FROM checkpoints")
    with open_recording(copy) as replay, open_recording(without) as folded:
        for step in [*range(replay.last_step, -1, -5), *range(0, replay.last_step, 7)]:
            due = folded.at(step).state
            assert replay.at(step).state.block_hashes.items() <= due.block_hashes.items()
            assert dataclasses.replace(replay.at(step).state, block_hashes=due.block_hashes) == due
        violations = list(check_recording(replay))
    assert {violation.check for violation in violations} == {"checkpoints_can_be_read"}
    connection = sqlite3.connect(copy)
    steps = {step for (step,) in connection.execute("SELECT step FROM checkpoints")}
    connection.close()
    assert {violation.step for violation in violations} <= steps


def test_a_checkpoint_of_another_step_is_passed_over(path: Path) -> None:
    connection = sqlite3.connect(path)
    (first,) = connection.execute("SELECT state FROM checkpoints WHERE base_step IS NULL ORDER BY step").fetchone()
    connection.close()
    copy = tampered(path, "other.db", "UPDATE checkpoints SET base_step = NULL, state = ?", (first,))
    with open_recording(copy) as replay, open_recording(path) as whole:
        for step in range(replay.last_step, 0, -3):
            assert replay.at(step).state.ref_cnts == whole.at(step).state.ref_cnts
