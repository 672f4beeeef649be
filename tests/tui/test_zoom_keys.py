"""The zoom of the timeline, by pilot: it stops where the whole run is shown, and one key goes there and back."""

from __future__ import annotations

import pytest

from kvscope.tui.view.window import Window, fitting_zoom, page
from tests.tui import scenes
from tests.tui.scenes import settle


@pytest.mark.parametrize(
    ("last_step", "num_columns", "expected"),
    [(100, 101, 1), (101, 101, 2), (201, 101, 2), (202, 101, 5), (999_999, 107, 10_000), (999_999, 1, 1), (0, 1, 1)],
)
def test_so_many_steps_a_column_that_the_run_fits(last_step: int, num_columns: int, expected: int) -> None:
    assert fitting_zoom(0, last_step, num_columns) == expected


def test_a_page_on_which_the_whole_run_fits_begins_with_it() -> None:
    before = Window(800, 100, 1)
    assert page(870, 0, 899, 100, 10, before) == Window(0, 100, 10)
    assert page(870, 0, 1_100, 100, 10, before) == Window(170, 100, 10)  # the cursor's column stays


async def test_zooming_out_stops_at_the_whole_run_and_one_key_goes_there_and_back() -> None:
    timeline = scenes.preemption()[0]
    app = scenes.screen(timeline, step=60)
    assert timeline.last_step == 66
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        model = app.model

        def seen() -> tuple[int, int, int]:
            assert model.window is not None
            return model.window.steps_per_column, model.window.first_step, model.step

        assert seen() == (1, 20, 60)
        await pilot.press("minus")
        assert seen() == (2, 0, 60)
        version = model.version
        await pilot.press("minus")
        await settle(pilot)
        assert (seen(), model.version) == ((2, 0, 60), version)
        assert [message.message for message in app._notifications] == [
            "the whole run is shown: z goes back to single steps"
        ]
        await pilot.press("z")
        assert seen() == (1, 30, 60)
        await pilot.press("z")
        assert seen() == (2, 0, 60)
