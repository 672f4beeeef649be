"""The engine in a process of its own, over its socket, with the toy model: commands, deaths, and what they leave."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvscope import control
from kvscope.control import Accepted, EngineStatus, Refused
from kvscope.control_client import ControlClient
from kvscope.session.options import EngineOptions
from kvscope.session.priority import ENGINE_NICENESS
from kvscope.session.runtime_folder import RUNTIME_FOLDER_VARIABLE, running_engines
from kvscope.session.spawn import SpawnedEngine, spawn_engine

TIMEOUT_S = 60.0


class WatchedClient:
    """A client that can wait for a condition."""

    def __init__(self, socket_path: Path, log_path: Path | None = None) -> None:
        self._changed = threading.Condition()
        self.client = ControlClient(socket_path, log_path=log_path, on_status=self._note).start()

    def _note(self, status: EngineStatus) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, phase: control.EnginePhase, *, step: int = -1) -> EngineStatus:
        """Returns the first condition of this phase, at this step or later."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self.client.status.phase == phase and self.client.status.step >= step, TIMEOUT_S
            ), self.client.status
            return self.client.status

    def ask(self, command: control.Command) -> control.Reply:
        return self.client.call(command, timeout_s=TIMEOUT_S)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path for sockets and recordings."""
    with tempfile.TemporaryDirectory(prefix="kv", ignore_cleanup_errors=True) as name:
        monkeypatch.setenv(RUNTIME_FOLDER_VARIABLE, f"{name}/run")
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        yield Path(name)


Connect = Callable[..., tuple[SpawnedEngine, WatchedClient]]


@pytest.fixture
def connect(folder: Path) -> Iterator[Connect]:
    """Starts engines with a client each, and ends them."""
    with contextlib.ExitStack() as stack:

        def start(model: str = "toy", *, linger_s: float = 30.0) -> tuple[SpawnedEngine, WatchedClient]:
            recording = str(folder / "r.db")
            spawned = spawn_engine(EngineOptions(model=model, recording=recording, linger_s=linger_s))
            stack.callback(_end, spawned.process)
            watched = WatchedClient(spawned.socket_path, spawned.log_path)
            stack.callback(watched.client.disconnect)
            return spawned, watched

        yield start


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(TIMEOUT_S)


def request(max_tokens: int) -> control.Submit:
    """A request of exactly so many tokens; 3,000 of them take seconds."""
    return control.Submit(prompt="hello", is_chat=False, sampling={"max_tokens": max_tokens, "ignore_eos": True})


def query(recording: Path, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def test_a_session_from_the_first_prompt_to_the_shutdown(connect: Connect, folder: Path) -> None:
    spawned, watched = connect()
    assert watched.ask(request(4)) == Accepted(request_id="req-1")  # while it loads
    status = watched.wait_for("idle", step=3)
    assert (status.step, status.recording) == (3, str(folder / "r.db"))
    priority = os.getpriority(os.PRIO_PROCESS, spawned.process.pid)
    assert priority == os.getpriority(os.PRIO_PROCESS, 0) + ENGINE_NICENESS

    assert watched.ask(control.Pause()) == Accepted()
    assert watched.ask(request(400)) == Accepted(request_id="req-2")
    assert watched.ask(control.Step(num_steps=2)) == Accepted()
    assert watched.wait_for("paused", step=5).num_running == 1
    conditions = (control.StopCondition(event="RequestFinished"),)
    assert watched.ask(request(400)) == Accepted(request_id="req-3")
    breakpoints = (control.StopCondition(expression='request == "req-2" and output_tokens >= 50'),)
    assert watched.ask(control.SetStopConditions(conditions=breakpoints)) == Accepted()
    assert watched.ask(control.Resume()) == Accepted()
    stopped = watched.wait_for("paused", step=6)
    assert stopped.detail == 'breakpoint: request == "req-2" and output_tokens >= 50'
    assert watched.ask(control.Step()) == Accepted()
    assert watched.wait_for("paused", step=stopped.step + 1).step == stopped.step + 1
    assert watched.ask(control.SetStopConditions(conditions=conditions)) == Accepted()
    assert watched.ask(control.Resume()) == Accepted()
    assert watched.wait_for("paused", step=100).detail.startswith("RequestFinished in step ")
    assert watched.ask(control.Abort(request_id="req-3")) == Accepted()
    assert watched.ask(control.Abort(request_id="req-7")) == Refused(message="no unfinished request is called req-7")
    assert watched.ask(control.Submit(prompt="")) == Refused(
        message="the prompt is empty: give at least one word", setting="prompt"
    )

    second = WatchedClient(spawned.socket_path)
    assert second.wait_for("paused").num_running == 1
    (card,) = running_engines()
    assert (card.pid, card.model, card.recording) == (spawned.process.pid, "toy", str(folder / "r.db"))
    assert second.ask(control.Shutdown()) == Accepted()
    assert spawned.process.wait(TIMEOUT_S) == 0
    for one in (watched, second):
        assert one.wait_for("stopped").recording == str(folder / "r.db")
    second.client.disconnect()

    rows = query(folder / "r.db", "select request_id, finish_reason from requests order by request_id")
    sampled = "select count(*) from tokens_sampled where request_id = 'req-2' and step "
    for steps, num_tokens in ((f"< {stopped.step}", 49), (f"<= {stopped.step}", 50)):  # it stood exactly there
        assert query(folder / "r.db", sampled + steps) == [(num_tokens,)]
    assert rows == [("req-1", "length"), ("req-2", "length"), ("req-3", "abort"), ("req-4", "rejected")]
    assert sorted(path.name for path in folder.iterdir()) == ["r.db", "run"]  # one file, and no empty log
    assert list((folder / "run").iterdir()) == []
    assert running_engines() == []


CLIENT = """
import sys
from kvscope import control
from kvscope.control_client import ControlClient
from kvscope.session.options import EngineOptions
from kvscope.session.spawn import spawn_engine

spawned = spawn_engine(EngineOptions(model="toy", recording=sys.argv[1], linger_s=0.3))
client = ControlClient(spawned.socket_path).start()
for number in range(64):
    sampling = {"max_tokens": 40, "ignore_eos": True, "temperature": 0}
    client.call(control.Submit(prompt=f"prompt {number}", is_chat=False, sampling=sampling))
client.call(control.SetStopConditions(conditions=(control.StopCondition(step=3),)))
print(spawned.process.pid, flush=True)
sys.stdin.read()
"""


def test_killing_the_screen_lets_its_requests_finish_and_leaves_no_orphan(folder: Path) -> None:
    """Even where the engine is paused when its only watcher is killed, together with its whole process group."""
    recording = folder / "r.db"
    screen = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(recording)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert screen.stdout is not None
    engine = os.pidfd_open(int(screen.stdout.readline()))
    try:
        os.killpg(screen.pid, signal.SIGKILL)
        screen.wait(TIMEOUT_S)
        assert select.select([engine], [], [], TIMEOUT_S)[0], "the engine process has not ended"
    finally:
        os.close(engine)
        screen.stdout.close()
        if screen.stdin is not None:
            screen.stdin.close()
    assert query(recording, "select finish_reason, count(*), sum(num_output_tokens) from requests group by 1") == [
        ("length", 64, 64 * 40)
    ]
    assert query(recording, "select value from meta where key = 'closed'") == [("1",)]
    assert sorted(path.name for path in folder.iterdir()) == ["r.db", "run"]


def test_a_killed_engine_is_seen_as_failed_and_leaves_a_readable_recording(connect: Connect, folder: Path) -> None:
    spawned, watched = connect()
    watched.ask(request(3000))
    watched.wait_for("running", step=20)
    deadline = time.monotonic() + TIMEOUT_S
    while query(folder / "r.db", "select count(*) from steps") == [(0,)]:  # the recorder is some 20 ms behind
        assert time.monotonic() < deadline
    spawned.process.kill()
    status = watched.wait_for("failed")
    assert (status.detail, status.recording) == ("the engine process has ended", str(folder / "r.db"))
    assert watched.ask(control.Pause()) == Refused(message="the engine process has ended")
    ((num_steps,),) = query(folder / "r.db", "select count(*) from steps")
    assert isinstance(num_steps, int)
    assert num_steps >= 1
    assert running_engines() == []


def test_sigterm_closes_the_recording(connect: Connect, folder: Path) -> None:
    spawned, watched = connect()
    watched.ask(request(3000))
    watched.wait_for("running", step=5)
    spawned.process.terminate()
    assert spawned.process.wait(TIMEOUT_S) == 0
    assert watched.wait_for("stopped").detail == ""
    assert query(folder / "r.db", "select request_id, finish_reason from requests") == [("req-1", "abort")]
    assert query(folder / "r.db", "select value from meta where key = 'closed'") == [("1",)]


def test_an_engine_that_cannot_load_says_why_to_its_client_and_its_log(connect: Connect, folder: Path) -> None:
    spawned, watched = connect("no-such-model", linger_s=0.2)
    status = watched.wait_for("failed")
    assert status.detail.startswith("no model 'no-such-model'")
    assert status.error == ""  # a traceback would say nothing more
    watched.client.disconnect()
    assert spawned.process.wait(TIMEOUT_S) == 0
    assert spawned.log_path.read_text() == f"{status.detail}\n"
    assert not (folder / "r.db").exists()


def test_the_folder_that_the_user_stands_in_is_no_place_to_import_from(
    connect: Connect, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "here" / "kvscope").mkdir(parents=True)  # as a clone of kvscope lies in a folder of projects
    (folder / "here" / "json.py").write_text("raise RuntimeError('imported from where the user stands')")
    monkeypatch.chdir(folder / "here")
    _, watched = connect()
    assert watched.wait_for("idle").step == -1


def test_a_line_that_is_no_command_is_refused_and_the_engine_goes_on(connect: Connect) -> None:
    import socket

    spawned, watched = connect()
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(TIMEOUT_S)
        raw.connect(str(spawned.socket_path))
        raw.sendall(b'{"id": 1, "command": {"type": "Dance"}}\n')
        lines = raw.makefile("rb")
        refusal = next(line for line in lines if b"Refused" in line)
    assert b"this is no command" in refusal
    assert isinstance(watched.ask(control.GetStatus()), EngineStatus)


def test_no_engine_behind_a_socket_is_a_refusal(folder: Path) -> None:
    client = ControlClient(folder / "nothing.sock").start()
    assert client.status.phase == "failed"
    reply = client.call(control.Pause())
    assert isinstance(reply, Refused)
    assert "no engine answers at" in reply.message
    client.disconnect()
