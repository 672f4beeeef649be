"""`kvscope replay` as users start it wrongly: one line with what to do, no traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvscope.recording import Recorder
from tests.builders import scenario
from tests.cli.command_line import CommandLine

BAD_SECOND = "there is no file other.db: check the path, or make a recording with kvscope run --record FILE"
NO_RECORDING = (
    "notes.txt is no recording of kvscope, or is damaged: file is not a database; give a file made with kvscope run "
    "--record FILE, or a copy that is whole"
)
NO_STEP = "there is no step 99 in run.db: it has 0 to 2"


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


def test_without_a_terminal_it_names_the_command_that_works(kvscope: CommandLine) -> None:
    outcome = kvscope("replay", "run.db")
    assert outcome.exit_code == 2
    assert outcome.err == (
        "kvscope: the screen needs a terminal, standard input or output is none: "
        "kvscope show run.db prints a step as text\n"
    )


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (
            ("none.db",),
            3,
            "there is no file none.db: check the path, or make a recording with kvscope run --record FILE",
        ),
        (("run.db", "--step", "99"), 2, NO_STEP),
        (("run.db", "other.db"), 3, BAD_SECOND),
        (("run.db", "notes.txt"), 3, NO_RECORDING),
        (("run.db", "run.db"), 2, "run.db is given twice: name each recording once"),
        (("run.db", "--align", "time"), 2, "--align time: choose auto, clock or step"),
        (("run.db", "--theme", "pink"), 2, "there is no theme 'pink': dark or light"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    kvscope: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    with Recorder("run.db") as recorder:
        for step, events in scenario().request("a", "abc", reply="xyz").run().sink.steps:
            recorder.write_step(step, events)
    Path("notes.txt").write_text("not a recording")
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    outcome = kvscope("replay", *arguments)
    assert (outcome.exit_code, outcome.out, outcome.err) == (exit_code, "", f"kvscope: {message}\n")
