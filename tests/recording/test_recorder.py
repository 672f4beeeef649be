"""The recorder: a thread of its own, one file when closed, a readable one when its process is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kvscope import events as ev
from kvscope.errors import RecordingError
from kvscope.recording import Recorder
from kvscope.recording.writer import Writer
from kvscope.replay import open_recording
from tests.recording.runs import golden_steps, record, write

STEPS = golden_steps("rand1004")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_closed_recording_is_one_file_also_after_it_was_read(tmp_path: Path) -> None:
    record(tmp_path / "run.db", STEPS)
    assert files(tmp_path) == ["run.db"]
    with open_recording(tmp_path / "run.db") as replay:
        assert replay.last_step == len(STEPS) - 1
        assert not replay.is_growing
        assert files(tmp_path) == ["run.db"]
    assert files(tmp_path) == ["run.db"]


def test_a_closed_recording_in_a_folder_without_write_permission_can_be_read(tmp_path: Path) -> None:
    record(tmp_path / "run.db", STEPS)
    (tmp_path / "run.db").chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        with open_recording(tmp_path / "run.db") as replay:
            assert [step for step, _ in replay.events(0, 10**6)] == list(range(len(STEPS)))
    finally:
        tmp_path.chmod(0o700)


def test_a_recording_is_never_written_over(tmp_path: Path) -> None:
    record(tmp_path / "run.db", STEPS[:1])
    before = (tmp_path / "run.db").read_bytes()
    with pytest.raises(RecordingError, match=r"run\.db is there already"):
        Recorder(tmp_path / "run.db")
    assert (tmp_path / "run.db").read_bytes() == before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"cannot make the recording .*/nowhere/run\.db: No such file"):
        Recorder(tmp_path / "nowhere" / "run.db")


def test_a_reader_follows_the_growing_file_to_its_end(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.db")
    with open_recording(tmp_path / "run.db") as replay:
        assert (replay.last_step, replay.is_growing, replay.config) == (-1, True, None)
        seen: list[list[ev.Event]] = []
        for step, events in STEPS:
            recorder.write_step(step, events)
            while not replay.refresh():
                pass
            assert replay.last_step == step
            seen += [list(of_step) for _, of_step in replay.events(step, step)]
            assert replay.at(step).state.step == step
        recorder.close()
        assert replay.refresh()
        assert (replay.is_growing, replay.refresh(), replay.last_step) == (False, False, len(STEPS) - 1)
        assert [len(events) for events in seen] == [len(events) for _, events in STEPS]
        assert replay.at(3).step == 3
    assert files(tmp_path) == ["run.db"]  # the reader held it open when it was closed, and tidied up


def test_a_killed_process_leaves_what_it_had_committed(tmp_path: Path) -> None:
    program = """
import sys, time
from tests.recording.runs import golden_steps
from kvscope.recording import Recorder
from kvscope.replay import open_recording
recorder = Recorder(sys.argv[1])
for step, events in golden_steps("rand1004")[:20]:
    recorder.write_step(step, events)
reader = open_recording(sys.argv[1])
while reader.last_step < 19:
    reader.refresh()
print("written", flush=True)
time.sleep(60)
"""
    path = tmp_path / "run.db"
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with open_recording(path) as replay:
        assert (replay.last_step, replay.is_growing) == (19, False)
        assert [len(events) for _, events in replay.events(0, 19)] == [len(events) for _, events in STEPS[:20]]
        assert replay.at(19).state.step == 19
    assert files(tmp_path) == ["run.db"]


def test_a_process_that_ends_without_closing_loses_nothing(tmp_path: Path) -> None:
    program = """
import sys
from tests.recording.runs import golden_steps, write
from kvscope.recording import Recorder
write(Recorder(sys.argv[1]), golden_steps("rand1004"))
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "run.db")], check=True)
    with open_recording(tmp_path / "run.db") as replay:
        assert (replay.last_step, replay.is_growing) == (len(STEPS) - 1, False)


def test_what_fails_in_the_thread_is_raised_in_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    recorder = Recorder(tmp_path / "run.db")
    write(recorder, STEPS[:1])
    while open_recording(tmp_path / "run.db").last_step < 0:
        pass
    monkeypatch.setattr(Writer, "write", fail)
    recorder.write_step(1, STEPS[1][1])
    with pytest.raises(RecordingError, match=r"cannot write the recording .*run\.db: database or disk is full"):
        recorder.close()
    with pytest.raises(RecordingError, match="disk is full"):
        recorder.write_step(2, STEPS[2][1])


def test_a_gap_in_the_steps_is_refused(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.db")
    recorder.write_step(0, STEPS[0][1])
    recorder.write_step(2, STEPS[2][1])
    with pytest.raises(RecordingError, match="step 2 was recorded after step 0"):
        recorder.close()


def test_events_that_contradict_the_state_are_recorded_all_the_same(tmp_path: Path) -> None:
    """A debugger must show a faulty engine's events; only what is derived from them ends where they stop fitting."""
    twice = ev.BlockAllocated(request_id="nobody", block_ids=(1,))
    steps = [*STEPS[:3], (3, [twice]), (4, [twice])]
    with open_recording(record(tmp_path / "run.db", steps)) as replay:
        assert [events for _, events in replay.events(3, 4)] == [[twice], [twice]]
        assert replay.at(2).step == 2
        with pytest.raises(RecordingError, match="step 3: BlockAllocated does not fit the state before it"):
            replay.at(3)
        assert replay.at(2).step == 2
        rows = replay.summaries(0, 10, 1)
        assert [row.num_running for row in rows[3:]] == [0, 0]


def test_requests_tell_their_story_in_plain_sql(tmp_path: Path) -> None:
    expected: dict[str, dict[str, object]] = {}
    for step, events in STEPS:
        for event in events:
            match event:
                case ev.RequestArrived():
                    expected[event.request_id] = {"arrival_step": step, "hits": 0, "preemptions": 0, "lost": 0}
                    expected[event.request_id] |= dict.fromkeys(("admitted", "first_token", "finished", "reason"))
                case ev.RequestAdmitted():
                    expected[event.request_id]["admitted"] = step
                case ev.PrefixCacheHit():
                    expected[event.request_id]["hits"] += event.num_hit_tokens  # type: ignore[operator]
                case ev.RequestPreempted():
                    expected[event.request_id]["preemptions"] += 1  # type: ignore[operator]
                    expected[event.request_id]["lost"] += event.num_lost_tokens  # type: ignore[operator]
                case ev.TokensSampled():
                    for request_id in event.request_ids:
                        if expected[request_id]["first_token"] is None:
                            expected[request_id]["first_token"] = step
                case ev.RequestFinished():
                    expected[event.request_id] |= {"finished": step, "reason": event.reason}
                case ev.RequestAborted():
                    expected[event.request_id] |= {"finished": step, "reason": "abort"}
                case _:
                    pass
    path = record(tmp_path / "run.db", STEPS)
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    found = {
        row["request_id"]: dict(row)
        for row in connection.execute(
            "SELECT request_id, arrival_step, num_hit_tokens AS hits, num_preemptions AS preemptions, "
            "num_lost_tokens AS lost, first_admitted_step AS admitted, first_token_step AS first_token, "
            "finished_step AS finished, finish_reason AS reason FROM requests"
        )
    }
    connection.close()
    assert found == {name: {"request_id": name, **row} for name, row in expected.items()}
    assert any(row["preemptions"] for row in expected.values())
