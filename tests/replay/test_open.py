"""Files that cannot be read: each a single line with what is wrong."""

from __future__ import annotations

import json
import lzma
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvscope.errors import KvscopeError, RecordingError
from kvscope.recording import schema
from kvscope.replay import open_recording, recording_database, upgrades
from kvscope.replay.dump import dump_steps
from tests.golden import golden_runs
from tests.recording.runs import golden_steps, record

STEPS = golden_steps("s20_cancel", "scenarios")


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE meta (key, value)")
    connection.commit()
    connection.close()


def half_a_recording(path: Path) -> None:
    data = record(path.with_name("whole.db"), STEPS).read_bytes()
    path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_bytes(b""), "no recording of kvscope"),
        (lambda path: path.write_text("a text\n" * 1000), "no recording of kvscope, or is damaged: file is not a"),
        (lambda path: path.write_bytes(b"SQLite format 3\x00" + bytes(4000)), "no recording of kvscope"),
        (other_database, "is a SQLite database, but no recording"),
        (half_a_recording, "damaged"),
    ],
)
def test_what_is_no_recording_is_told_in_one_line(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    path = tmp_path / "file.db"
    make(path)
    with pytest.raises(RecordingError, match=message) as caught:
        open_recording(path)
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message


def with_version(path: Path, version: object) -> Path:
    record(path, STEPS)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format_version'", (version,))
    connection.commit()
    connection.close()
    return path


def test_a_newer_format_says_which_kvscope_made_it(tmp_path: Path) -> None:
    path = with_version(tmp_path / "new.db", schema.FORMAT_VERSION + 1)
    limits = rf"has format {schema.FORMAT_VERSION + 1}, this kvscope reads up to {schema.FORMAT_VERSION}"
    with pytest.raises(RecordingError, match=limits + ": it was made by kvscope .* newer one"):
        open_recording(path)


@pytest.mark.parametrize("version", ["", "two", None])
def test_a_format_that_is_no_number(tmp_path: Path, version: object) -> None:
    with pytest.raises(RecordingError, match="names no format version"):
        open_recording(with_version(tmp_path / "odd.db", version))


def test_an_older_format_is_upgraded_in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = record(tmp_path / "old.db", STEPS)
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE steps RENAME COLUMN token_budget TO budget")  # as if it had once been called so
    connection.execute("DROP VIEW step_started")
    connection.commit()
    connection.close()
    before = path.read_bytes()

    def rename(copy: sqlite3.Connection) -> None:
        copy.execute("ALTER TABLE steps RENAME COLUMN budget TO token_budget")

    newest = schema.FORMAT_VERSION + 1
    monkeypatch.setattr(recording_database, "FORMAT_VERSION", newest)
    monkeypatch.setattr(upgrades, "FORMAT_VERSION", newest)
    monkeypatch.setattr(upgrades, "UPGRADES", {schema.FORMAT_VERSION: rename})
    with open_recording(path) as replay:
        assert [len(events) for _, events in replay.events(0, 10**6)] == [len(events) for _, events in STEPS]
        assert replay.at(replay.last_step).state.token_budget > 0
    assert path.read_bytes() == before
    monkeypatch.setattr(upgrades, "UPGRADES", {})
    with pytest.raises(RecordingError, match=f"format {schema.FORMAT_VERSION} are no longer read"):
        open_recording(path)


@pytest.mark.parametrize("version", range(1, schema.FORMAT_VERSION + 1))
def test_a_file_of_every_format_is_read(tmp_path: Path, version: int) -> None:
    """`data/` keeps a recording of the golden run rand1004 as each format's first kvscope wrote it."""
    packed = Path(__file__).with_name("data") / f"format_{version}.db.xz"
    path = tmp_path / "old.db"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    with open_recording(path) as replay:
        records = list(dump_steps(replay.events(0, replay.last_step)))
        assert replay.at(30).state.running == records[31]["before"]["running"]
    assert json.loads(json.dumps(records)) == golden_runs("random")["rand1004"]["trace"]["steps"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("whole") / "run.db", STEPS)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_with_flipped_bytes_never_fails_otherwise(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Damage is told or goes unnoticed where it changed nothing that is read; it is never a traceback."""
    content = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.db"
    path.write_bytes(content)
    with suppress(KvscopeError), open_recording(path) as replay:
        for step in range(replay.last_step, -1, -1):
            replay.at(step)
        for request_id in replay.request_ids():
            replay.token_ids(request_id, replay.last_step)
            replay.request(request_id)
        replay.summaries(0, 100, 1)
