"""A recorder whose writer is a process of its own: the same recordings, and what happens when either side dies."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kvscope import events as ev
from kvscope.errors import RecordingError
from kvscope.recording import Recorder
from kvscope.recording.recorder import create_recording
from kvscope.recording.step_pipe import StepsFromPipe, next_frames, write_steps_elsewhere
from kvscope.recording.write_loop import SourceLost, write_steps
from kvscope.recording.writer import Step
from kvscope.replay import open_recording
from tests.recording.runs import OFTEN, golden_steps, record, write

STEPS = golden_steps("rand1004")


def read(path: Path) -> list[tuple[int, list[ev.Event]]]:
    with open_recording(path) as replay:
        assert not replay.is_growing
        return [(step, list(events)) for step, events in replay.events(0, 10**6)]


def tables(path: Path) -> list[str]:
    """Returns all that is in the file but when and by which process it was made."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [line for line in connection.iterdump() if "created_at" not in line and "'writer'" not in line]


def source(*steps: Step | None) -> queue.SimpleQueue[Step | None]:
    filled: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
    for step in steps:
        filled.put(step)
    return filled


def test_a_process_writes_what_a_thread_writes(tmp_path: Path) -> None:
    with Recorder(tmp_path / "process.db", checkpoints=OFTEN, in_own_process=True) as recorder:
        write(recorder, STEPS)
    assert tables(tmp_path / "process.db") == tables(record(tmp_path / "thread.db", STEPS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["process.db", "thread.db"]
    assert len(read(tmp_path / "process.db")) == len(STEPS)


def test_an_engine_that_is_killed_leaves_every_step_it_had_handed_over(tmp_path: Path) -> None:
    program = """
import os, signal, sys, time
from tests.recording.runs import golden_steps, write
from kvscope.recording import Recorder
from kvscope.recording.recorder import create_recording
from kvscope.replay import open_recording
recorder = Recorder(sys.argv[1], in_own_process=True)
write(recorder, golden_steps("rand1004")[:20])
reader = open_recording(sys.argv[1])
while reader.last_step < 19:
    reader.refresh()
    time.sleep(0.001)
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "run.db"
    engine = subprocess.run([sys.executable, "-c", program, str(path)], check=False, stderr=subprocess.PIPE)
    assert (engine.returncode, engine.stderr) == (-signal.SIGKILL, b"")
    assert [step for step, _ in read(path)] == list(range(20))


def test_a_gap_in_the_steps_is_told_by_the_process(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.db", in_own_process=True)
    recorder.write_step(0, STEPS[0][1])
    recorder.write_step(2, STEPS[2][1])
    with pytest.raises(RecordingError, match="step 2 was recorded after step 0"):
        recorder.close()
    with pytest.raises(RecordingError, match="step 2 was recorded after step 0"):
        recorder.write_step(3, STEPS[3][1])


def test_what_sqlite_says_is_told_by_the_process(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_text("no database at all, but a text of more than a hundred bytes, as long as the head of one" * 2)
    with pytest.raises(
        RecordingError, match=r"^cannot write the recording .*run\.db: file is not a database; what was written before"
    ):
        write_steps_elsewhere(source(STEPS[0], None), path, None)


def test_a_process_that_ends_without_a_word_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(RecordingError, match=r"run\.db: the process that writes it ended with 1; what was"):
        write_steps_elsewhere(source(*STEPS, None), tmp_path / "run.db", None)


def test_steps_come_out_of_the_pipe_as_they_went_in() -> None:
    """Also such as no message can hold: a number of more than 64 bits, half a surrogate pair."""
    odd = ev.RequestArrived(
        request_id="\udc80", prompt_token_ids=(1,), max_tokens=1 << 70, arrival_time=0.5, queue_position=0
    )
    steps: list[Step] = [*STEPS[:3], (3, [odd]), (4, [])]
    frames, is_ended = next_frames(source(*steps, None))
    assert is_ended
    reading, writing = os.pipe()
    pipe = StepsFromPipe(reading)
    with pytest.raises(queue.Empty):
        pipe.get(timeout=0.0)
    os.write(writing, frames[:7])
    with pytest.raises(queue.Empty):
        pipe.get(timeout=0.0)
    os.write(writing, frames[7:])
    assert [pipe.get() for _ in steps] == [(step, list(events)) for step, events in steps]
    assert pipe.get() is None
    os.close(writing)
    for _ in range(2):
        with pytest.raises(SourceLost):
            pipe.get()
    os.close(reading)


def test_what_came_before_the_engine_was_gone_is_written(tmp_path: Path) -> None:
    """Three steps and half of a fourth."""
    with contextlib.closing(sqlite3.connect(tmp_path / "run.db")) as connection:
        create_recording(connection)
    frames, _ = next_frames(source(*STEPS[:4]))
    rest, _ = next_frames(source(STEPS[3]))
    reading, writing = os.pipe()
    os.write(writing, frames[: -len(rest) // 2])
    os.close(writing)
    with pytest.raises(SourceLost):
        write_steps(StepsFromPipe(reading), tmp_path / "run.db", None)
    os.close(reading)
    with open_recording(tmp_path / "run.db") as replay:
        assert (replay.last_step, replay.is_growing) == (2, True)


def test_frames_are_sent_as_soon_as_there_are_no_more_steps() -> None:
    one, is_ended = next_frames(source(STEPS[0]))
    two, _ = next_frames(source(STEPS[0], STEPS[0]))
    assert (is_ended, two) == (False, one + one)
