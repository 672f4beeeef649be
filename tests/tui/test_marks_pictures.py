"""Pictures of the timeline's marks. Each docstring says what a reviewer should see."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from kvscope.replay import open_recording
from kvscope.replay.bookmarks import Bookmarks
from kvscope.tui import markers
from kvscope.tui.app import KvscopeApp
from tests.tui.test_marks import STORM, until_read

Compare = Callable[..., Any]


async def read(pilot: Pilot[None]) -> None:
    assert isinstance(pilot.app, KvscopeApp)
    await until_read(pilot, pilot.app)


@pytest.mark.parametrize(
    ("size", "is_ascii"), [((80, 24), False), ((120, 40), False), ((120, 40), True)], ids=["80x24", "120x40", "ascii"]
)
def test_findings_and_bookmarks(
    snap_compare: Compare,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_detectors: None,
    size: tuple[int, int],
    is_ascii: bool,
) -> None:
    """On the axis `§` where findings begin and `⚑` at two bookmarks (`@`, `B` in ASCII), counted at its left.

    The cursor stands on the first bookmark: its sign before the step's number, its note first in the step panel.
    """
    monkeypatch.setattr(markers, "MAX_STEPS", 20_000)
    path = Path(shutil.copy(STORM, tmp_path / "storm.db"))
    for step, note in ((75, "here the queue stands still"), (82, "")):
        Bookmarks(path).put(step, note)
    app = KvscopeApp(open_recording(path), open_timeline=open_recording, initial_step=75, is_ascii=is_ascii)
    assert snap_compare(app, terminal_size=size, run_before=read)
