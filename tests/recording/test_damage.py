"""Nothing disappears from a recording unnoticed, and checkpoints only make it quicker."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("blob", ["x''", "x'00'", "zeroblob(40)", "substr(state, 1, length(state) / 2)", "'text'"])
def test_a_damaged_checkpoint_says_what_to_do(path: Path, blob: str) -> None:
    copy = tampered(path, "checkpoint.db", f"UPDATE checkpoints SET state = {blob}")
    with open_recording(copy) as replay, pytest.raises(RecordingError, match="checkpoint"):
        replay.at(replay.last_step)


def test_a_missing_base_is_named(path: Path) -> None:
    copy = tampered(path, "base.db", "DELETE FROM checkpoints WHERE base_step IS NULL")
    with open_recording(copy) as replay, pytest.raises(RecordingError, match="lacks the checkpoint of step"):
        replay.at(replay.last_step)
