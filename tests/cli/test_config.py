"""`kvscope config`: what is in force, where the file is, a file to begin with; and what a wrong file does elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    line = CommandLine(tmp_path, monkeypatch, capsys)
    monkeypatch.setenv("KVSCOPE_CONFIG", str(tmp_path / "config.toml"))
    return line


def test_the_folder_of_the_file_is_made_for_whoever_redirects_into_it(
    kvscope: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kvscope.folder / "new" / "config.toml"
    monkeypatch.setenv("KVSCOPE_CONFIG", str(path))
    assert kvscope("config", "--path").out == f"{path}\n"
    assert [*path.parent.iterdir()] == []


def test_a_file_to_begin_with_can_be_redirected_to_where_the_file_is(kvscope: CommandLine) -> None:
    path = kvscope("config", "--path")
    assert (path.exit_code, path.out, path.err) == (0, f"{kvscope.folder / 'config.toml'}\n", "")
    begun = kvscope("config", "--default").out
    Path(path.out.strip()).write_text(begun)
    assert json.loads(kvscope("config", "--json").out)["theme"] == "dark"
    Path(path.out.strip()).write_text(
        begun.replace('# theme = "dark" ', 'theme = "light"').replace("# zoom = 1 ", "zoom = 10")
    )
    found = kvscope("config")
    assert (found.exit_code, found.err) == (0, f"the config file is {kvscope.folder / 'config.toml'}\n")
    assert found.out.splitlines()[:3] == [
        'theme = "light"                               # colours: dark, light (not the default)',
        "ascii = false                                 # draw with ASCII characters only: true, false",
        "zoom = 10                                     # steps a column of the timeline: 1, 2, 5, 10, 20, 50 … 1000"
        " (not the default)",
    ]


def test_the_settings_as_json(kvscope: CommandLine) -> None:
    (kvscope.folder / "config.toml").write_text('screenshots = "/p"\n[keys]\nleave.quit = ["q", "ctrl+w"]\n')
    found = json.loads(kvscope("config", "--json").out)
    keys = found.pop("keys")
    assert found == {
        "path": str(kvscope.folder / "config.toml"),
        "exists": True,
        "theme": "dark",
        "ascii": False,
        "zoom": 1,
        "speed": 8,
        "screenshots": "/p",
    }
    assert (keys["leave.quit"], keys["time.back"]) == (["q", "ctrl+w"], ["left", "h"])


@pytest.mark.parametrize("command", [("replay", "none.db"), ("live", "--model", "toy"), ("config",)])
def test_a_wrong_file_is_told_in_one_line_before_anything_is_opened(
    kvscope: CommandLine, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    path = kvscope.folder / "config.toml"
    path.write_text('[keys]\nleave.quit = "j"\n')
    outcome = kvscope(*command)
    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err == (
        f"kvscope: {path}, line 2: keys.leave.quit: j is taken by move.down (next in the list): "
        "give one of the two another key\n"
    )
    assert [*kvscope.folder.iterdir()] == [path]


def test_the_doctor_says_all_the_rest_where_the_model_folder_cannot_be_read(
    kvscope: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kvscope.folder / "file").touch()
    monkeypatch.setenv("KVSCOPE_CACHE", str(kvscope.folder / "file"))
    found = kvscope("doctor", "--json")
    assert found.exit_code == 0
    told = json.loads(found.out)
    assert "cannot be read: Not a directory; KVSCOPE_CACHE names the folder" in told["model smollm2-135m"]
    assert told["running engines"] == "0"


def test_the_doctor_says_what_is_wrong_with_the_file(kvscope: CommandLine) -> None:
    path = kvscope.folder / "config.toml"
    path.write_text("zoom = 4\n")
    told = json.loads(kvscope("doctor", "--json").out)["config file"]
    assert told == f"{path}, line 1: zoom: 4 is not allowed: 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000"
