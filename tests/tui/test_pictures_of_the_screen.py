"""Pictures that a key keeps: written in every place, never over another file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kvscope.tui.app import KvscopeApp
from kvscope.tui.config import DEFAULT, Config
from tests.tui import scenes
from tests.tui.scenes import settle


def over(folder: Path, config: Config = DEFAULT) -> KvscopeApp:
    timeline = scenes.preemption()[0]
    return KvscopeApp(timeline, config=dataclasses.replace(config, screenshots_folder=folder))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ((), "req-4"),
        (("w",), "why"),
        (("question_mark",), "live, one user"),
        (("colon",), "steps 0 to 66"),
        (("e",), "stalled"),
        (("b", "f1"), "free_blocks"),
    ],
)
async def test_every_place_and_what_opens_above_it_can_be_kept(
    tmp_path: Path, keys: tuple[str, ...], words: str
) -> None:
    app = over(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press(*keys)
        await settle(pilot)
        await pilot.press("ctrl+g")
        said = [note.message for note in app._notifications][-1]
    path = tmp_path / "scene-step-66.svg"
    assert [*tmp_path.iterdir()] == [path]
    assert said == f"picture kept: {path}"
    picture = path.read_text(encoding="utf-8").replace("&#160;", " ")
    assert picture.startswith("<svg")
    assert words in picture
    assert "scene.db, step 66" in picture


async def test_a_picture_is_never_written_over_another(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    app = over(folder)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+g")
        (folder / "scene-step-66.svg").write_text("mine")
        await pilot.press("ctrl+g", "ctrl+g")
    assert sorted(path.name for path in folder.iterdir()) == [
        "scene-step-66-2.svg",
        "scene-step-66-3.svg",
        "scene-step-66.svg",
    ]
    assert (folder / "scene-step-66.svg").read_text() == "mine"


async def test_a_folder_that_cannot_be_made_is_named_and_the_screen_stays(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    app = over(tmp_path / "taken")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+g", "left")
        await settle(pilot)
        assert [note.message for note in app._notifications] == [
            f"no picture was kept: {tmp_path / 'taken'} cannot be written to (File exists)"
        ]
        assert app.model.step == 65
