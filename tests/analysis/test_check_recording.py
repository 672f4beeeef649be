"""What a recording says of its events beside them: rows, wide columns, tokens."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from kvscope.analysis import check
from kvscope.analysis.check import check_recording
from kvscope.replay import open_recording
from tests.recording.runs import golden_steps, record


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("check") / "run.db", golden_steps("rand1028"))


def checks_that_fail(path: Path, sql: str) -> set[str]:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    connection = sqlite3.connect(copy)
    assert connection.execute(sql).rowcount > 0
    connection.commit()
    connection.close()
    with open_recording(copy) as timeline:
        return {violation.check for violation in check_recording(timeline)}


def test_a_wide_column_that_lost_a_happening_is_named(path: Path) -> None:
    sql = "UPDATE summaries SET num_hits = num_hits + 1 WHERE num_steps = 10 AND first_step = 10"
    assert checks_that_fail(path, sql) == {"columns_equal_their_steps"}


def test_a_wide_column_with_another_maximum_is_named(path: Path) -> None:
    sql = "UPDATE summaries SET num_waiting = num_waiting + 100 WHERE num_steps = 10 AND first_step = 20"
    assert checks_that_fail(path, sql) == {"columns_equal_their_steps"}


def test_of_a_long_recordings_requests_some_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request's tokens lie in as many rows as it ran steps: of long ones not all can be read one by one."""
    with open_recording(path) as timeline:
        request_ids = timeline.request_ids()
        asked: list[str] = []
        read = timeline.token_ids

        def ask(request_id: str, step: int) -> list[int]:
            asked.append(request_id)
            return read(request_id, step)

        monkeypatch.setattr(timeline, "token_ids", ask)
        assert list(check_recording(timeline)) == []
        assert asked == request_ids
        asked.clear()
        monkeypatch.setattr(check, "MAX_STEPS_OF_TOKENS", 100)
        assert list(check_recording(timeline)) == []
    assert 1 < len(asked) < len(request_ids)
    assert set(asked) <= set(request_ids)


def test_steps_are_counted_while_they_are_checked(path: Path) -> None:
    with open_recording(path) as timeline:
        heard: list[int] = []
        assert list(check_recording(timeline, heard.append)) == []
        assert heard == list(range(1, timeline.last_step + 2))
