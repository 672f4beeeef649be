"""What the README says is so: its example is what the command prints, its commands and files exist."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from kvscope.analysis.step_report import step_report
from kvscope.cli.main import app
from kvscope.replay import open_recording

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_is_what_the_command_prints() -> None:
    shown = re.search(r"`kvscope show (\S+) --step (\d+)`\):\n\n```\n(.*?)\n```", README, re.DOTALL)
    assert shown is not None
    with open_recording(ROOT / shown[1]) as timeline:
        assert shown[3] in "\n".join(step_report(timeline, int(shown[2])))


def test_every_command_and_file_that_it_names_exists() -> None:
    named = set(re.findall(r"`kvscope (\w+)", README)) | set(re.findall(r"^kvscope (\w+)", README, re.MULTILINE))
    assert named >= {"show", "why", "replay"}
    assert named <= set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    paths = re.findall(r"\]\(([^)]+)\)|`((?:kvscope|recordings)/[\w/.]*)`", README)
    assert [path for pair in paths for path in pair if path and not (ROOT / path).exists()] == []
