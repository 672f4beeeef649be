"""What a key changes is painted at once, together, and as a whole painting of the screen would have it."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.pilot import Pilot
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import Screen
from textual.strip import Strip

from kvscope.analysis.text import cell_width
from kvscope.replay import MemoryTimeline
from kvscope.session.bench_terminal import PaintedScreen
from kvscope.tui.app import KvscopeApp
from kvscope.tui.dimming import DimmedScreen
from kvscope.tui.painting import PiecesUpdate
from kvscope.tui.view.changes import Change, change_of
from kvscope.tui.view.lines import Line, Span
from kvscope.tui.widgets.panel import Panel
from tests.tui import scenes
from tests.tui.scenes import settle

Cell = tuple[str, Style | None]


def cells(strip: Strip) -> list[Cell]:
    """Returns the characters of a strip, one for each cell, and how they look."""
    found: list[Cell] = []
    for segment in strip:
        for char in segment.text:
            found += [(char, segment.style), ("", segment.style)][: cell_width(char)]
    return found


class Terminal:
    """Hears what is written to the terminal: as a terminal does, and with its styles."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]) -> None:
        self.painted = PaintedScreen(*size)
        self.rows: list[list[Cell]] = []
        self.num_own = self.num_others = 0
        self.headers: list[tuple[str, ...]] = []
        """The steps that header and step panel name, after each painting."""
        display = App._display

        def _display(app: KvscopeApp, screen: Screen[object], update: Any) -> None:
            if update is not None:
                self._hear(app, update)
            display(app, screen, update)

        monkeypatch.setattr(KvscopeApp, "_display", _display)

    def _hear(self, app: KvscopeApp, update: Any) -> None:
        self.painted.feed(update.render_segments(app.console).encode())
        if isinstance(update, PiecesUpdate):
            self.num_own += 1
            for column, row, strip in update.pieces:
                found = cells(strip)
                self.rows[row][column : column + len(found)] = found
        else:
            self.num_others += 1
        lines = self.painted.lines
        named = [re.search(r"step +(\d+) */", lines[0]), *(re.search(r"STEP ─ (\d+)", each) for each in lines)]
        self.headers.append(tuple(match[1] for match in named if match))

    def begin(self, app: KvscopeApp) -> None:
        """Takes what stands there now for painted."""
        self.rows = [cells(strip) for strip in app.screen._compositor.render_strips()]
        self.num_own = self.num_others = 0
        self.headers.clear()

    def check(self, app: KvscopeApp) -> None:
        """What was painted is what a painting of everything would show."""
        whole = app.screen._compositor.render_strips()
        assert self.painted.lines == [strip.text.rstrip() for strip in whole]
        assert self.rows == [cells(strip) for strip in whole]


def timelines() -> dict[str, MemoryTimeline]:
    return {"preemption": scenes.preemption()[0], "full pool": scenes.full_pool(), "wide": scenes.wide_text()}


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("name", timelines())
async def test_pieces_make_the_whole(name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, size)
    app = scenes.screen(timelines()[name], is_ascii=name == "full pool")
    chance = random.Random(7)
    keys = ["left", "right", "H", "L", "j", "k", "0", "$", "v", "s", "plus", "minus", "[", "]"]
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        terminal.begin(app)
        for key in chance.choices(keys, k=60):
            await pilot.press(key)
        await settle(pilot)
        terminal.check(app)
        assert terminal.num_own > 20
        assert terminal.num_others == 0


async def test_a_view_that_changes_twice_is_painted_against_what_stood_there(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, (120, 40))
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        terminal.begin(app)
        with app.painter.together():
            app.main_screen.footer.set_lines([line("other", "words")])
            app.main_screen.footer.set_lines([line("other", "keys")])
        terminal.check(app)
        assert terminal.num_own == 1


async def test_no_frame_shows_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, (120, 40))
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        terminal.begin(app)
        for name in ["left", "h", "j", "left", "H", "w", "left", "right", "escape", "l", "colon", "5", "enter", "left"]:
            app.post_message(scenes.key(name))
        await pilot.press("left")
        await settle(pilot)
    assert {len(set(steps)) for steps in terminal.headers if steps} == {1}
    assert terminal.headers[-1] == ("3", "3")


async def left_to_textual(pilot: Pilot[None], terminal: Terminal, key: str) -> None:
    """Presses a key whose changes Textual has to paint, all of them."""
    app = pilot.app
    assert isinstance(app, KvscopeApp)
    terminal.begin(app)
    await pilot.press(key)
    await settle(pilot)
    assert terminal.num_own == 0
    assert terminal.painted.lines == [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


async def test_what_lies_over_a_view_stays_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, (120, 40))
    app = scenes.screen(scenes.preemption()[0])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        app.say("a message that lies over the pool")
        await settle(pilot)
        await left_to_textual(pilot, terminal, "left")
        assert any("lies over" in line for line in terminal.painted.lines)
        app.clear_notifications()
        await settle(pilot)
        terminal.begin(app)
        await pilot.press("left", "left")
        terminal.check(app)
        assert terminal.num_own == 2
        await pilot.press("colon")
        app.navigation.move_by(-1)
        await settle(pilot)
        assert terminal.num_own == 2
        assert any("steps 0 to" in line for line in terminal.painted.lines)
        await pilot.press("escape")
        await settle(pilot)
        assert terminal.painted.lines == [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


async def test_news_wait_a_while_after_a_painting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.tui.app.POLL_SECONDS", 1e6)  # looked for by hand
    run = scenes.preempting_run()
    timeline = scenes.recorded(run, is_finished=False)
    monkeypatch.setattr(timeline, "refresh", lambda: True)
    app = scenes.screen(timeline)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        seen = [app.model.num_news]
        for seconds in (1e6, 0.0):
            monkeypatch.setattr("kvscope.tui.app.NEWS_SECONDS", seconds)
            app._tick()
            seen.append(app.model.num_news)
    assert seen == [seen[0], seen[0], seen[0] + 1]


async def test_the_ways_back_are_made_ready_once_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.tui.app.PREPARE_AFTER_SECONDS", 1e6)  # done by hand
    timeline = scenes.preemption()[0]
    prepared: list[int] = []
    monkeypatch.setattr(timeline, "prepare", prepared.append)
    app = scenes.screen(timeline)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("colon", *"40", "enter")
        await settle(pilot)
        shown_at = app._shown_at
        app._prepare_ways_back(shown_at)
        assert prepared == [30, 39]
        await pilot.press("left")
        await settle(pilot)
        app._prepare_ways_back(shown_at)
        assert prepared == [30, 39]


async def test_while_keys_come_news_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.tui.app.POLL_SECONDS", 1e6)  # looked for by hand
    monkeypatch.setattr("kvscope.tui.app.NEWS_SECONDS", 0.0)
    timeline = scenes.recorded(scenes.preempting_run(), is_finished=False)
    monkeypatch.setattr(timeline, "refresh", lambda: True)
    app = scenes.screen(timeline)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        news = []
        for seconds_in_use, in_use in ((1e6, 1e6), (1e6, 0.0), (0.0, 1e6)):
            monkeypatch.setattr("kvscope.tui.app.NEWS_SECONDS_IN_USE", seconds_in_use)
            monkeypatch.setattr("kvscope.tui.app.IN_USE_SECONDS", in_use)
            await pilot.press("j")
            await settle(pilot)
            before = app.model.num_news
            app._tick()
            news.append(app.model.num_news - before)
    assert news == [0, 1, 1]


async def test_what_comes_behind_a_held_step_changes_header_and_timeline_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.tui.app.POLL_SECONDS", 1e6)  # looked for by hand
    run = scenes.preempting_run()
    timeline = scenes.recorded(run, is_finished=False)
    monkeypatch.setattr(timeline, "refresh", lambda: True)
    built: list[str | None] = []
    build = Panel._built

    def _built(panel: Panel, width: int, height: int) -> Sequence[Line]:
        built.append(panel.id)
        return build(panel, width, height)

    monkeypatch.setattr(Panel, "_built", _built)
    terminal = Terminal(monkeypatch, (120, 40))
    app = scenes.screen(timeline)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        terminal.begin(app)
        await pilot.press("left")
        await settle(pilot)
        built.clear()
        timeline.write_step(timeline.last_step + 1, run.sink.steps[-1][1][:1])
        app._poll()
        app.show_now()
        assert built == ["header", "timeline"]
        assert "HELD, 2 behind" in terminal.painted.lines[0]
        terminal.check(app)


def line(*texts: str) -> tuple[Span, ...]:
    return tuple(Span(text) for text in texts)


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (line("ab", "c"), line("ab", "c"), Change(3, (), 0)),
        (line("ab", "c", "de"), line("ab", "x", "de"), Change(2, line("x"), 1)),
        (line("ab", "c", "de"), line("ab", "xy", "de"), Change(2, line("xy", "de"), 8)),
        (line("ab", "c"), line("ab"), Change(2, (), 8)),
        (line("ab"), line("ab", "c"), Change(2, line("c"), 8)),
        (line("a", "a"), line("a", "a", "a"), Change(2, line("a"), 8)),
        (line("首", "c"), line("首", "d"), Change(2, line("d"), 8)),
        (line("首", "c"), line("都", "c"), Change(0, line("都"), 2)),
        (line("0123456789", "b"), line("0123456789", "c"), Change(10, line("c"), 0)),
        (line("012345678", "bcd", "e"), line("012345678", "xyz", "e"), Change(9, line("xyz"), 1)),
        ((Span("a"),), (Span("a", "bold"),), Change(0, (Span("a", "bold"),), 10)),
    ],
)
def test_the_part_of_a_row_that_changed(old: tuple[Span, ...], new: tuple[Span, ...], change: Change) -> None:
    assert change_of(old, new, 10) == change


def test_a_screen_below_is_dimmed_as_textual_does_it() -> None:
    styles = [None, Style(), Style(color="#C9D1D9"), Style(color="red", bgcolor="#0F141A", bold=True), Style(bold=True)]
    segments = [Segment(f"text {number}", style) for number, style in enumerate(styles * 2)]
    segments.append(Control.home().segment)
    for color in (Color(15, 20, 26, 0.4), Color(200, 20, 26, 0.9), Color(0, 0, 0, 0.0)):
        plain = list(BackgroundScreen.process_segments(segments, color))
        assert list(DimmedScreen.process_segments(segments, color)) == plain
