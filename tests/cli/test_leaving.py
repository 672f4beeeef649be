"""Leaving the screen, in every way there is: the process ends, the terminal is as before, the recording is whole.

A closed terminal once left a process behind that read on from it for ever, with a core of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvscope.control import Submit
from kvscope.control_client import ControlClient
from kvscope.replay import open_recording
from kvscope.session.runtime_folder import RUNTIME_FOLDER_VARIABLE, running_engines
from tests.cli.terminal import TIMEOUT_S, Terminal

STORM = Path(__file__).parents[2] / "recordings" / "preemption_storm.db"

Ways = dict[str, Callable[[Terminal], None]]

WAYS: Ways = {
    "ctrl+c": lambda terminal: terminal.type("\x03"),
    "SIGTERM": lambda terminal: terminal.process.send_signal(signal.SIGTERM),
}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path for sockets and recordings; no config file of whoever runs the tests."""
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


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_is_left(folder: Path, terminals: list[Terminal], way: str) -> None:
    terminal = Terminal("replay", str(STORM))
    terminals.append(terminal)
    terminal.read_until("REPLAY")
    WAYS[way](terminal)
    assert terminal.read_to_the_end() == 0
    assert terminal.is_restored


@pytest.mark.parametrize("is_controlling", [True, False], ids=["which says so", "which says nothing"])
def test_a_replay_ends_with_its_terminal(folder: Path, terminals: list[Terminal], is_controlling: bool) -> None:
    terminal = Terminal("replay", str(STORM), is_controlling=is_controlling)
    terminals.append(terminal)
    terminal.read_until("REPLAY")
    terminal.close()
    assert terminal.process.wait(TIMEOUT_S) == 0


def begun(folder: Path, terminals: list[Terminal], *, is_controlling: bool = True) -> tuple[Terminal, int]:
    """Returns a live screen whose engine has eight requests to run, and the engine as something to wait for."""
    terminal = Terminal("live", "--model", "toy", "--record", str(folder / "r.db"), is_controlling=is_controlling)
    terminals.append(terminal)
    terminal.read_until("IDLE")
    (card,) = running_engines()
    client = ControlClient(Path(card.socket)).start()
    for number in range(8):
        client.call(Submit(prompt=f"prompt {number}", is_chat=False, sampling={"max_tokens": 60, "ignore_eos": True}))
    client.disconnect()
    return terminal, os.pidfd_open(card.pid)


def recorded(folder: Path, engine: int) -> list[tuple[str, int]]:
    """Waits until the engine has ended; returns how its requests ended, from a recording that is one closed file."""
    assert select.select([engine], [], [], TIMEOUT_S)[0], "the engine process has not ended"
    os.close(engine)
    assert sorted(path.name for path in folder.iterdir()) == ["r.db", "run"]
    assert list((folder / "run").iterdir()) == []
    with contextlib.closing(open_recording(folder / "r.db")) as timeline:
        assert not timeline.is_growing
    with contextlib.closing(sqlite3.connect(folder / "r.db")) as connection:
        return connection.execute("select finish_reason, count(*) from requests group by 1").fetchall()


def test_a_live_screen_that_is_terminated_leaves_the_engine_to_finish(folder: Path, terminals: list[Terminal]) -> None:
    terminal, engine = begun(folder, terminals)
    WAYS["SIGTERM"](terminal)
    assert terminal.read_to_the_end() == 0
    assert terminal.is_restored
    assert f"recorded in {folder / 'r.db'}" in terminal.seen
    assert recorded(folder, engine) == [("length", 8)]


@pytest.mark.parametrize("is_controlling", [True, False], ids=["which says so", "which says nothing"])
def test_a_live_screen_ends_with_its_terminal_and_the_engine_finishes(
    folder: Path, terminals: list[Terminal], is_controlling: bool
) -> None:
    terminal, engine = begun(folder, terminals, is_controlling=is_controlling)
    terminal.close()
    assert terminal.process.wait(TIMEOUT_S) == 0
    assert recorded(folder, engine) == [("length", 8)]


def test_ctrl_c_twice_leaves_a_live_screen_without_an_answer_to_its_question(
    folder: Path, terminals: list[Terminal]
) -> None:
    terminal, engine = begun(folder, terminals)
    terminal.type("\x03")
    terminal.read_until("unfinished")
    terminal.type("\x03")
    assert terminal.read_to_the_end() == 0
    assert terminal.is_restored
    assert recorded(folder, engine) == [("length", 8)]
