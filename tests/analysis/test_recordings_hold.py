"""The recordings that come with kvscope: the real engine's runs hold every invariant."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.analysis.check import check_recording
from kvscope.replay.replay import open_recording

RECORDINGS = sorted((Path(__file__).parents[2] / "recordings").glob("*.db"))


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) >= 3


@pytest.mark.parametrize("path", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_every_invariant_holds(path: Path) -> None:
    with open_recording(path) as recording:
        assert list(check_recording(recording)) == []
