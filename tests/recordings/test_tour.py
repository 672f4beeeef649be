"""The tour in docs/TOUR.md is true: its commands are run, its keys pressed, its answers looked for on the screen."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.pilot import Pilot

from kvscope.tui.app import KvscopeApp
from kvscope.tui.widgets.lines_view import LinesView
from tests.cli.command_line import CommandLine
from tests.tui import scenes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "TOUR.md"
MOST_KEYS = 6
KEYS = {"⏎": "enter", "pgdn": "pagedown", ":": "colon"}
ANSWERS = ("preempted for", "was evicted for", "holders", "waited", "In between", "They part in")
"""What the answers of the stops must be about, in their order: the page cannot lose one."""


@dataclass(frozen=True)
class Stop:
    """One question of the tour."""

    question: str
    commands: tuple[str, ...]
    keys: tuple[str, ...]
    answers: tuple[str, ...]


def stops() -> list[Stop]:
    """Returns the stops of the page; each line of a quotation is an answer of its own."""
    found = []
    for section in PAGE.read_text().split("\n## ")[1:]:
        question, _, text = section.partition("\n")
        (commands,) = re.findall(r"```\n(.*?)\n```", text, re.DOTALL)
        (keys,) = re.findall(r"^Keys: (.*)$", text, re.MULTILINE)
        answers = [line.removeprefix("> ") for line in text.splitlines() if line.startswith("> ")]
        found.append(Stop(question, tuple(commands.splitlines()), tuple(re.findall("`([^`]+)`", keys)), tuple(answers)))
    return found


def shown(app: KvscopeApp) -> list[str]:
    """Returns what each part of the screen shows, its lines as one text."""
    return [
        " ".join(" ".join("".join(span.text for span in line) for line in part.lines).split())
        for part in app.screen.query(LinesView)
        if part.display
    ]


async def press(pilot: Pilot[None], app: KvscopeApp, keys: Sequence[str]) -> None:
    for key in keys:
        await pilot.press(KEYS.get(key, key))
        while app.typed_ahead.is_holding:
            await asyncio.sleep(0.002)
        await app.workers.wait_for_complete()
        await scenes.settle(pilot)


def test_every_stop_is_there_and_has_few_keys() -> None:
    found = stops()
    assert [next((word for word in ANSWERS if word in " ".join(stop.answers)), None) for stop in found] == list(ANSWERS)
    assert [stop.question for stop in found if not 0 < len(stop.keys) <= MOST_KEYS] == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
@pytest.mark.parametrize("stop", stops(), ids=lambda stop: stop.question)
def test_the_keys_lead_to_the_answer(
    stop: Stop,
    size: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The screen is opened as the command opens it."""
    kvscope = CommandLine(tmp_path, monkeypatch, capsys)
    (tmp_path / "recordings").symlink_to(ROOT / "recordings")
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    found: list[str] = []

    def run_app(app: KvscopeApp) -> None:
        async def walk() -> None:
            async with app.run_test(size=size) as pilot:
                await scenes.settle(pilot)
                await press(pilot, app, stop.keys)
                found.extend(shown(app))

        asyncio.run(walk())

    monkeypatch.setattr("kvscope.tui.running.run_app", run_app)
    for command in stop.commands:
        name, *words = shlex.split(command)
        assert (name, kvscope(*words).exit_code) == ("kvscope", 0)
    assert [answer for answer in stop.answers if not any(answer in part for part in found)] == []
