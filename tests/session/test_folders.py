"""Where sockets and recordings go: private, short, never over what is there."""

from __future__ import annotations

import datetime
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope.control import EngineStatus, Pause, Refused
from kvscope.control_client import ControlClient
from kvscope.errors import EngineError, UsageError
from kvscope.session import runtime_folder
from kvscope.session.recordings_folder import claim_recording_path, new_recording_path, remove_recording, unused_path
from kvscope.session.runtime_folder import EngineCard

NOW = datetime.datetime(2026, 11, 29, 15, 30, 12)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="kv") as name:
        monkeypatch.setenv(runtime_folder.RUNTIME_FOLDER_VARIABLE, f"{name}/run")
        yield Path(name) / "run"


def card(path: Path, started_at: str = "2026-11-29T15:30:12") -> EngineCard:
    return EngineCard(pid=1, model="toy", recording="r.db", log="r.log", socket=str(path), started_at=started_at)


def test_the_runtime_folder_is_the_users_alone(folder: Path) -> None:
    assert runtime_folder.runtime_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(EngineError, match="must be yours alone"):
        runtime_folder.listen()


def test_a_socket_path_that_is_too_long_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(runtime_folder.RUNTIME_FOLDER_VARIABLE, str(tmp_path / ("x" * 100)))
    with pytest.raises(EngineError, match="allows 103: set KVSCOPE_RUNTIME_DIR to a shorter folder"):
        runtime_folder.listen()


def test_a_long_default_folder_gives_way_to_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(runtime_folder.RUNTIME_FOLDER_VARIABLE, raising=False)
    long_path = tmp_path / ("x" * 100)
    monkeypatch.setattr("platformdirs.user_runtime_path", lambda name: long_path)
    with tempfile.TemporaryDirectory(prefix="kv") as short:
        monkeypatch.setattr("tempfile.gettempdir", lambda: short)
        assert runtime_folder.runtime_folder() == Path(short) / f"kvscope-{os.getuid()}"


def test_dead_engines_are_cleared_away_and_living_ones_come_oldest_first(folder: Path) -> None:
    newer, newer_path = runtime_folder.listen()
    older, older_path = runtime_folder.listen()
    dead, dead_path = runtime_folder.listen()
    with newer, older:
        dead.close()
        for path, started_at in ((newer_path, "2026-02"), (older_path, "2026-01"), (dead_path, "2026-03")):
            runtime_folder.write_card(card(path, started_at))
        (folder / "half.json").write_text("{")
        assert [engine.started_at for engine in runtime_folder.running_engines()] == ["2026-01", "2026-02"]
        assert not dead_path.exists()
        assert not runtime_folder.card_path(dead_path).exists()


def test_an_engine_that_dies_is_said_with_the_end_of_its_log(folder: Path, tmp_path: Path) -> None:
    listener, path = runtime_folder.listen()
    log = tmp_path / "r.db.log"
    log.write_text("".join(f"line {number}\n" for number in range(20)) + "Segmentation fault\n\n")
    statuses: list[EngineStatus] = []
    client = ControlClient(path, log_path=log, on_status=statuses.append)
    with listener:
        client.start()
        connection, _ = listener.accept()
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
    assert client.call(Pause()) == Refused(message="the engine process has ended: Segmentation fault")
    assert client.status.phase == "failed"
    assert client.status.detail == "the engine process has ended: Segmentation fault"
    assert client.status.error.splitlines() == [*(f"line {number}" for number in range(9, 20)), "Segmentation fault"]
    assert statuses == [client.status]
    client.disconnect()
    client.disconnect()


def test_new_recordings_are_named_after_the_moment_and_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSCOPE_RECORDINGS", str(tmp_path))
    first = new_recording_path("smollm2-135m", NOW)
    assert first == tmp_path / "2026-11-29-153012-smollm2-135m.db"
    first.touch()
    assert new_recording_path("smollm2-135m", NOW) == tmp_path / "2026-11-29-153012-smollm2-135m-2.db"
    (tmp_path / "2026-11-29-153012-smollm2-135m-2.db.log").touch()
    assert new_recording_path("smollm2-135m", NOW) == tmp_path / "2026-11-29-153012-smollm2-135m-3.db"
    assert new_recording_path("Org/My Model.GGUF", NOW) == tmp_path / "2026-11-29-153012-my-model.gguf.db"
    assert unused_path(tmp_path / "other.db") == tmp_path / "other.db"


def test_a_recording_is_claimed_only_where_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "new" / "r.db"
    assert claim_recording_path(path, may_replace=False) == path
    assert path.parent.is_dir()
    path.write_text("precious")
    with pytest.raises(UsageError, match="exists already: name another file, or replace it with --force"):
        claim_recording_path(path, may_replace=False)
    assert claim_recording_path(path, may_replace=True) == path
    assert path.read_text() == "precious"
    with pytest.raises(UsageError, match="is a folder"):
        claim_recording_path(tmp_path, may_replace=True)
    with pytest.raises(UsageError, match=r"cannot make the folder .*: File exists"):
        claim_recording_path(path / "below.db", may_replace=False)


def test_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    """Whoever may would else remove /dev/null, which `--record /dev/null --force` did."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is no file, and is left as it is: name a file for the recording"):
        claim_recording_path(tmp_path / "pipe", may_replace=True)


def test_names_that_no_file_can_have_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot write a recording to .*: File name too long"):
        claim_recording_path(tmp_path / ("n" * 300), may_replace=True)
    with pytest.raises(UsageError, match="no file has a NUL character in its name"):
        claim_recording_path(tmp_path / "a\0b", may_replace=True)
    with pytest.raises(UsageError, match=r"~nobody-is-called-so/r\.db: there is no home folder of nobody-is-called-so"):
        claim_recording_path(Path("~nobody-is-called-so/r.db"), may_replace=True)


def test_a_runtime_folder_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(runtime_folder.RUNTIME_FOLDER_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(EngineError, match=r"cannot make the folder .*: File exists; set KVSCOPE_RUNTIME_DIR"):
        runtime_folder.runtime_folder()


def test_removing_a_recording_takes_what_sqlite_left_beside_it(tmp_path: Path) -> None:
    for name in ("r.db", "r.db-wal", "r.db-shm", "r.db.notes.json"):
        (tmp_path / name).touch()
    remove_recording(tmp_path / "r.db")
    assert [path.name for path in tmp_path.iterdir()] == ["r.db.notes.json"]
