"""Pictures of the main screen from injected events. Each docstring says what a reviewer should see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui import scenes

Compare = Callable[..., Any]

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])


async def open_request(pilot: Pilot[None]) -> None:
    await scenes.settle(pilot)
    await pilot.press("enter")
    await scenes.settle(pilot)


async def open_help(pilot: Pilot[None]) -> None:
    await pilot.press("question_mark")
    await scenes.settle(pilot)


@SIZES
def test_empty(snap_compare: Compare, size: tuple[int, int]) -> None:
    """A recording without steps: "no step yet" in the timeline, "the recording has no step" under STEP, step —/—."""
    assert snap_compare(scenes.screen(scenes.empty()), terminal_size=size, run_before=scenes.settle)


@SIZES
def test_one_request(snap_compare: Compare, size: tuple[int, int]) -> None:
    """req-1 decodes: one blue bar a step after one of prefill, nobody waits, its blocks on the violet background; at
    120×40 its block table with the prompt's words and the answer so far."""
    assert snap_compare(scenes.screen(scenes.one_request()), terminal_size=size, run_before=scenes.settle)


@SIZES
def test_full_pool(snap_compare: Compare, size: tuple[int, int]) -> None:
    """The head of the queue needs more blocks than are free: the failed test in red with need and have, also as a
    sentence; shared blocks of the common beginning bear their count."""
    assert snap_compare(scenes.screen(scenes.full_pool()), terminal_size=size, run_before=scenes.settle)


@SIZES
def test_preemption(snap_compare: Compare, size: tuple[int, int]) -> None:
    """The step of the first preemption: ▲ on the timeline, the first sentence names victim and beneficiary, the victim
    stands first in the waiting queue and is selected, its former blocks bear a red −."""
    timeline, step = scenes.preemption()
    assert snap_compare(scenes.screen(timeline, step=step), terminal_size=size, run_before=scenes.settle)


@SIZES
def test_failed_step(snap_compare: Compare, size: tuple[int, int]) -> None:
    """✖ on the timeline and the error with its phase as the first sentence; "[0]" of the message is shown as it is."""
    assert snap_compare(scenes.screen(scenes.failed_step()), terminal_size=size, run_before=scenes.settle)


@SIZES
def test_256_requests(snap_compare: Compare, size: tuple[int, int]) -> None:
    """192 wait and 64 run: the first rows of each queue and "… n more"; the pool in one cell a block or several."""
    assert snap_compare(scenes.screen(scenes.many_requests()), terminal_size=size, run_before=scenes.settle)


@SIZES
def test_wide_text(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Chinese, Japanese and emoji: every column behind the text stays aligned."""
    assert snap_compare(scenes.screen(scenes.wide_text()), terminal_size=size, run_before=scenes.settle)


@SIZES
def test_hostile_text(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Escape sequences as ␛, line breaks as ⏎, tabs as ⇥, markup as it was typed: no colour and no link comes of it."""
    assert snap_compare(scenes.screen(scenes.hostile_text()), terminal_size=size, run_before=scenes.settle)


def test_request_place(snap_compare: Compare) -> None:
    """Enter on the selected request: facts, where its time went, life, block table with its text, what happened."""
    timeline, step = scenes.preemption()
    assert snap_compare(scenes.screen(timeline, step=step + 9), terminal_size=(120, 40), run_before=open_request)


def test_ascii(snap_compare: Compare) -> None:
    """The preemption in ASCII alone: P E H F on the timeline, # 2 % . + x o - in the pool."""
    timeline, step = scenes.preemption()
    assert snap_compare(
        scenes.screen(timeline, step=step, is_ascii=True), terminal_size=(80, 24), run_before=scenes.settle
    )


def test_help(snap_compare: Compare) -> None:
    """The legend, then every key of the main screen in two columns."""
    assert snap_compare(scenes.screen(scenes.one_request()), terminal_size=(120, 40), run_before=open_help)
