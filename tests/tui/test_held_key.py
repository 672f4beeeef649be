"""A held key goes farther the longer it is held; taps never do. All on a clock of the test's own."""

from __future__ import annotations

from itertools import accumulate

import pytest
from textual.events import Key

from kvscope.tui.app import KvscopeApp
from kvscope.tui.held_key import HeldKey
from tests.tui import scenes
from tests.tui.scenes import settle


def heard(gaps: list[float], key: str = "right") -> list[int]:
    """Returns how many times as far each press goes; the first comes at time 100."""
    held = HeldKey()
    return [held.hear(key, at) for at in accumulate(gaps, initial=100.0)]


def stages(factors: list[int]) -> list[int]:
    return [factor for index, factor in enumerate(factors) if index == 0 or factor != factors[index - 1]]


@pytest.mark.parametrize("gap_s", [0.015, 0.033, 0.04, 0.09], ids=["very fast", "Windows", "X11", "slow Mac"])
def test_a_held_key_goes_farther_the_longer_it_is_held(gap_s: float) -> None:
    factors = heard([0.5, *[gap_s] * round(13 / gap_s)])
    assert stages(factors) == [1, 2, 5, 10, 20, 50, 100, 200, 500]
    first_fast = factors.index(2)
    assert (first_fast - 1) * gap_s == pytest.approx(0.8, abs=gap_s)


def test_a_slow_line_delivers_repeats_unevenly() -> None:
    factors = heard([0.5, *[0.01, 0.02, 0.09, 0.04] * 24])
    assert stages(factors) == [1, 2, 5, 10]


@pytest.mark.parametrize(
    "gaps",
    [
        [0.125] * 100,
        [0.09, 0.11] * 50,
        [0.075, 0.1, 0.08] * 40,
        [0.2] * 50,
    ],
    ids=["8 a second", "10 a second", "12 a second", "5 a second, as even as a machine"],
)
def test_taps_never_skip_a_step(gaps: list[float]) -> None:
    assert set(heard(gaps)) == {1}


@pytest.mark.parametrize("gap_s", [0.0, 0.001, 0.005], ids=["a paste", "a script", "a slower script"])
def test_what_a_program_types_never_skips_a_step(gap_s: float) -> None:
    assert set(heard([gap_s] * 1000)) == {1}


def test_a_release_ends_it_at_once() -> None:
    held = HeldKey()
    factors = [held.hear("right", 0.033 * number) for number in range(100)]
    assert factors[-1] == 10
    assert [held.hear("right", 3.267 + 0.17), held.hear("right", 3.267 + 0.3)] == [1, 1]


def test_another_key_ends_it_at_once() -> None:
    held = HeldKey()
    for number in range(100):
        held.hear("right", 0.033 * number)
    assert [held.hear("left", 3.3), held.hear("right", 3.333)] == [1, 1]


async def at_times(app: KvscopeApp, key: str, times: list[float]) -> None:
    """Presses a key at times of a keyboard's clock."""
    for at in times:
        event = Key(key, None)
        event.time = at
        app.post_message(event)


async def test_a_held_arrow_moves_by_what_it_goes_and_never_beyond_an_end() -> None:
    app = scenes.screen(scenes.preemption()[0], step=0)
    times = [0.0, *[0.5 + 0.04 * number for number in range(40)]]
    expected = HeldKey()
    far = sum(expected.hear("right", at) for at in times)
    assert far == 1 + 20 + 2 * 18 + 5 * 2
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await at_times(app, "right", times[:31])
        await settle(pilot)
        assert app.model.step == 1 + 20 + 2 * 10
        await at_times(app, "right", times[31:])
        await settle(pilot)
        assert app.model.step == min(far, 66)
        await at_times(app, "left", [10.0 + 0.03 * number for number in range(200)])
        await settle(pilot)
        assert app.model.step == 0


async def test_taps_on_the_screen_go_one_step_each_and_ten_with_shift() -> None:
    app = scenes.screen(scenes.preemption()[0], step=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await at_times(app, "right", [0.12 * number for number in range(30)])
        await settle(pilot)
        assert app.model.step == 30
        await at_times(app, "shift+right", [10.0, 10.2, 10.4])
        await settle(pilot)
        assert app.model.step == 60


async def test_the_page_keys_of_time_turn_a_page_of_the_timeline() -> None:
    app = scenes.screen(scenes.preemption()[0], step=60)
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        assert app.model.window is not None
        assert app.model.window.num_columns == 60 - 13
        await pilot.press("left_parenthesis")
        await settle(pilot)
        assert app.model.step == 60 - 47
        await pilot.press("ctrl+right")
        await settle(pilot)
        assert app.model.step == 60
        await pilot.press("minus", "ctrl+left")
        await settle(pilot)
        assert app.model.step == 0
        await pilot.press("right_parenthesis")
        await settle(pilot)
        assert app.model.step == 66
