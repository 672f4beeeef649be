"""`kvscope live`, `attach` and `doctor`, but for the screen itself: starting, leaving, finding engines."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from kvscope.cli import live
from kvscope.control import EngineStatus
from kvscope.session.runtime_folder import RUNTIME_FOLDER_VARIABLE, EngineCard, running_engines
from tests.cli.command_line import CommandLine
from tests.cli.terminal import KVSCOPE, Terminal


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path for sockets and recordings."""
    with tempfile.TemporaryDirectory(prefix="kv", ignore_cleanup_errors=True) as name:
        monkeypatch.setenv(RUNTIME_FOLDER_VARIABLE, f"{name}/run")
        monkeypatch.setenv("KVSCOPE_CONFIG", "/dev/null")
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        yield Path(name)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Ends the commands that a test leaves running."""
    made: list[Terminal] = []
    yield made
    for terminal in made:
        terminal.end()


def test_leaving_the_screen_ends_the_engine_and_restores_the_terminal(folder: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal("live", "--model", "toy", "--record", str(folder / "r.db"))
    terminals.append(terminal)
    terminal.read_until("type a prompt")
    terminal.read_until("IDLE")
    (card,) = running_engines()
    terminal.type("\x03")
    assert terminal.read_to_the_end() == 0
    after_screen = terminal.seen.rpartition("\x1b[?1049l")[2]
    assert f"recorded in {folder / 'r.db'}" in after_screen
    with pytest.raises(ProcessLookupError):
        os.kill(card.pid, 0)
    assert sorted(path.name for path in folder.iterdir()) == ["r.db", "run"]


def test_attach_shows_a_running_engine_and_leaves_it_running(folder: Path, terminals: list[Terminal]) -> None:
    first = Terminal("live", "--model", "toy", "--record", str(folder / "r.db"))
    terminals.append(first)
    first.read_until("IDLE")
    (card,) = running_engines()
    listed = subprocess.run([*KVSCOPE, "attach", "--list"], capture_output=True, text=True, check=True)
    assert listed.stdout == f"{card.pid}  toy  since {card.started_at}  {folder / 'r.db'}\n"
    second = Terminal("attach", str(folder / "r.db"))
    terminals.append(second)
    second.read_until("IDLE")
    second.type("\x03")
    assert second.read_to_the_end() == 0
    assert [engine.pid for engine in running_engines()] == [card.pid]
    first.type("\x03")
    assert first.read_to_the_end() == 0


def test_torch_is_imported_by_the_engine_process_alone() -> None:
    """The screen must be there before torch is, and the reading commands need none."""
    modules = "kvscope.cli.main, kvscope.engine.llm_engine, kvscope.session.spawn, kvscope.tui.app"
    heavy = ("torch", "triton", "tokenizers", "gguf", "safetensors", "jinja2")
    check = f"import {modules}, sys; print([name for name in {heavy} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        ((), 2, "the screen needs a terminal, standard input or output is none: kvscope run works without one"),
        (("live",), 2, "the screen needs a terminal, standard input or output is none: kvscope run works without one"),
        (
            ("attach",),
            2,
            "no engine runs on this machine: kvscope live starts one, kvscope replay shows a recording",
        ),
        (("lve",), 2, "No such command 'lve'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    kvscope: CommandLine, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    outcome = kvscope(*arguments)
    assert (outcome.exit_code, outcome.out) == (exit_code, "")
    assert outcome.err.startswith(f"kvscope: {message}")
    assert outcome.err.count("\n") == 1


def test_a_model_that_was_not_fetched_is_named_before_the_screen_starts(
    kvscope: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvscope.cli.live.require_terminal", lambda instead: None)
    outcome = kvscope("live")
    assert outcome.exit_code == 4
    assert "kvscope models fetch smollm2-135m" in outcome.err
    assert outcome.err.count("\n") == 1
    assert list(kvscope.folder.iterdir()) == []


def test_attach_asks_which_engine_where_several_run(kvscope: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [
        EngineCard(pid=pid, model="toy", recording=f"/r/{pid}.db", log="", socket=f"/s/{pid}", started_at="2026-01-02")
        for pid in (11, 12)
    ]
    monkeypatch.setattr("kvscope.cli.attach.running_engines", lambda: cards)
    lines = "11  toy  since 2026-01-02  /r/11.db; 12  toy  since 2026-01-02  /r/12.db"
    assert kvscope("attach").err == (
        f"kvscope: several engines run: name one by its recording or process id: {lines}\n"
    )
    assert kvscope("attach", "13").err == (
        f"kvscope: 13 is none of the engines that run: name one by its recording or process id: {lines}\n"
    )
    for target in ("12", "12.db", "/r/12.db", "/s/12"):
        assert kvscope("attach", target).err.startswith("kvscope: the screen needs a terminal")


def test_the_doctor_names_versions_folders_and_what_is_missing(
    kvscope: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = kvscope("doctor", "--json")
    found = json.loads(healthy.out)
    assert (healthy.exit_code, found["missing"]) == (0, [])
    assert found["recordings folder"] == f"{kvscope.folder / 'recordings'} (0 recordings)"
    assert found["model smollm2-135m"] == "missing: kvscope models fetch smollm2-135m"
    assert found["running engines"] == "0"
    monkeypatch.setattr("kvscope.session.build.ENGINE_EXTRA", ("no_such_package_here",))
    ill = kvscope("doctor")
    assert ill.exit_code == 1
    assert "missing: no_such_package_here. pip install 'kvscope[engine]'" in ill.out


def test_further_interrupts_do_not_keep_a_recording_from_becoming_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine takes longer to end than it is waited for; what it has closed already is made one file."""
    path = tmp_path / "r.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (a)")
    copies = {end: path.with_name(path.name + end).read_bytes() for end in ("", "-wal", "-shm")}
    connection.close()
    for end, content in copies.items():  # as a writer leaves it that could not switch back
        path.with_name(path.name + end).write_bytes(content)

    def wait(timeout: float) -> NoReturn:
        os.kill(os.getpid(), signal.SIGINT)
        raise subprocess.TimeoutExpired("engine", timeout)

    status = EngineStatus(phase="stopped", recording=str(path))
    spawned = SimpleNamespace(process=SimpleNamespace(wait=wait))
    engine: Any = SimpleNamespace(client=SimpleNamespace(status=status), spawned=spawned, recording=path)
    before = signal.getsignal(signal.SIGINT)
    with live._without_interrupts():
        live._say_how_it_ended([engine])
    assert signal.getsignal(signal.SIGINT) is before
    assert [file.name for file in tmp_path.iterdir()] == ["r.db"]
    assert capsys.readouterr().err.splitlines() == [
        "the engine is ending (kvscope attach shows it)",
        f"recorded in {path}",
    ]
