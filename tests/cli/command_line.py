"""Runs kvscope's command line inside the test's process, in an empty folder with its own cache and recordings."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvscope.cli.main import main


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command printed, and how it ended."""

    exit_code: int
    out: str
    err: str


class CommandLine:
    """Call it with the arguments after `kvscope`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.chdir(folder)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.setenv("KVSCOPE_RECORDINGS", str(folder / "recordings"))
        monkeypatch.setenv("KVSCOPE_CACHE", str(folder / "cache"))
        monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(folder / "run"))
        monkeypatch.setenv("KVSCOPE_CONFIG", "/dev/null")

    def __call__(self, *arguments: str) -> Outcome:
        self._monkeypatch.setattr(sys, "argv", ["kvscope", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, out, err)
