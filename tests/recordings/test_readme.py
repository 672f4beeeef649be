"""What the README names exists."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from kvscope.cli.main import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_command_that_it_names_exists() -> None:
    named = set(re.findall(r"`kvscope (\w+)", README))
    assert named >= {"show", "why", "replay"}
    assert sorted(named - set(typer.main.get_command(app).commands)) == []  # type: ignore[attr-defined]


def test_every_file_that_it_names_exists() -> None:
    named = re.findall(r"\]\(([^):]+)\)|`((?:kvscope|recordings)/[\w/.]*)`", README)
    paths = [path for pair in named for path in pair if path]
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
