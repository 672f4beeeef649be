"""Bookmarks lie beside the recording, whole or not at all; the recording itself is never touched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kvscope.replay.bookmarks import Bookmark, Bookmarks, NotesError
from tests.recording.runs import golden_steps, record


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return record(tmp_path / "run.db", golden_steps("s20_cancel", "scenarios"))


def test_notes_are_kept_beside_the_recording_which_stays_as_it_is(recording: Path) -> None:
    before = recording.read_bytes(), recording.stat().st_mtime_ns
    bookmarks = Bookmarks(recording)
    bookmarks.put(12, " 在这里 the first refusal ")
    bookmarks.put(3, "")
    bookmarks.put(12, "the first refusal")
    assert Bookmarks(recording).read() == [Bookmark(step=3), Bookmark(step=12, note="the first refusal")]
    assert bookmarks.at(12) == Bookmark(step=12, note="the first refusal")
    assert (recording.read_bytes(), recording.stat().st_mtime_ns) == before
    assert sorted(path.name for path in recording.parent.iterdir()) == ["run.db", "run.db.notes.json"]
    assert json.loads((recording.parent / "run.db.notes.json").read_text()) == {
        "format": 1,
        "bookmarks": [{"step": 3, "note": ""}, {"step": 12, "note": "the first refusal"}],
    }


def test_two_screens_over_one_recording_keep_each_others_bookmarks(recording: Path) -> None:
    one, other = Bookmarks(recording), Bookmarks(recording)
    one.read(), other.read()
    one.put(1, "one")
    other.put(2, "other")
    one.remove(1)
    assert Bookmarks(recording).read() == [Bookmark(step=2, note="other")]


def test_what_somebody_else_keeps_in_the_file_stays_in_it(recording: Path) -> None:
    sidecar = Bookmarks(recording).path
    sidecar.write_text('{"format": 1, "bookmarks": [], "colours": {"req-1": "red"}}')
    Bookmarks(recording).put(5, "x")
    assert json.loads(sidecar.read_text())["colours"] == {"req-1": "red"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[1]", "holds no notes of kvscope (Expected `object`, got `array`); move it away to begin anew"),
        ('{"format": 2, "bookmarks": []}', "has format 2, this kvscope reads up to 1"),
    ],
)
def test_a_file_that_is_no_notes_is_not_overwritten(recording: Path, content: str, says: str) -> None:
    sidecar = Bookmarks(recording).path
    sidecar.write_text(content)
    with pytest.raises(NotesError) as raised:
        Bookmarks(recording).put(1, "x")
    assert raised.value.message == f"{sidecar} {says}"
    assert sidecar.read_text() == content


def test_a_folder_that_cannot_be_written_says_so(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, for whom no folder is read-only: the file system's answer is put in its place."""

    def refuse(*_: object, **__: object) -> tuple[int, str]:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    bookmarks = Bookmarks(recording)
    with pytest.raises(NotesError) as raised:
        bookmarks.put(1, "x")
    assert raised.value.message == (
        f"the bookmark was not kept: {bookmarks.path} cannot be written (Permission denied)"
    )
    assert not bookmarks.path.exists()


def test_a_disk_that_is_full_leaves_the_old_notes_whole(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bookmarks = Bookmarks(recording)
    bookmarks.put(1, "old")

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(NotesError):
        bookmarks.put(2, "new")
    assert Bookmarks(recording).read() == [Bookmark(step=1, note="old")]
    assert sorted(path.name for path in recording.parent.iterdir()) == ["run.db", "run.db.notes.json"]


def test_a_note_has_a_length(recording: Path) -> None:
    with pytest.raises(NotesError) as raised:
        Bookmarks(recording).put(1, "x" * 2_001)
    assert raised.value.message == "a note has at most 2,000 characters, this one 2,001"
