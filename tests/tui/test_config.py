"""The config file: what it may say, what is said of its errors, and that keys do what they are configured to do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from textual.widgets import Input

from kvscope.analysis.workload_menu import WORKLOADS
from kvscope.tui.actions import actions, places
from kvscope.tui.app import KvscopeApp
from kvscope.tui.config import DEFAULT, Config, ConfigError, config_path, parse_config, read_config
from kvscope.tui.config_text import config_text
from kvscope.tui.key_names import KeyNameError, parse_key, shown_key
from kvscope.tui.keymap import Keys, clashes
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.modals import TextModal
from kvscope.tui.screens.why import WhyScreen
from kvscope.tui.widgets.lines_view import LinesView
from tests.tui import scenes
from tests.tui.scenes import settle
from tests.tui.test_keys import shown

TEXT = """
theme = "light"
ascii = true
zoom = 20
speed = 64
screenshots = "/pictures"

[keys]
time.back = ["left", "!"]
"move.down" = "ctrl+n"

[keys.engine]
abort = []
"""


def test_everything_that_a_file_may_say() -> None:
    assert parse_config(TEXT, "c.toml") == Config(
        theme="light",
        is_ascii=True,
        steps_per_column=20,
        steps_per_second=64,
        screenshots_folder=Path("/pictures"),
        keys={"time.back": ("left", "exclamation_mark"), "move.down": ("ctrl+n",), "engine.abort": ()},
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('\ntheme = "pink"', 'c.toml, line 2: theme: "pink" is not allowed: "dark", "light"'),
        ("ascii = 1", "c.toml, line 1: ascii: 1 is not allowed: true, false"),
        ("zoom = 3", "c.toml, line 1: zoom: 3 is not allowed: 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000"),
        ("speed = true", "c.toml, line 1: speed: true is not allowed: 1, 2, 4, 8, 16, 32, 64, 128"),
        ("screenshots = 3", "c.toml, line 1: screenshots: 3 is no folder: a path in quotes"),
        (
            "them = 1",
            "c.toml, line 1: them: there is no such setting, did you mean theme?: "
            "theme, ascii, zoom, speed, screenshots, keys",
        ),
        ("keys = 1", "c.toml, line 1: keys: [keys] is a table: an action and its keys on each line"),
        (
            '[keys]\n\ntime.bak = "h"',
            "c.toml, line 3: keys.time.bak: there is no such action, did you mean time.back? "
            "(kvscope config --default has all)",
        ),
        (
            '[keys.time]\nback = "lfet"',
            "c.toml, line 2: keys.time.back: there is no key 'lfet': did you mean 'left'?",
        ),
        (
            "[keys]\ntime.back = 7",
            'c.toml, line 2: keys.time.back: 7 is no key: a key in quotes, or several: ["left", "h"]',
        ),
        (
            '[keys]\ntime.back = "ctrl+i"',
            "c.toml, line 2: keys.time.back: a terminal sends the same for ctrl+i as for tab: choose another key",
        ),
        (
            '[keys]\ntime.back = ["left", "ctrl+c"]',
            "c.toml, line 2: keys.time.back: ctrl+c always leaves: choose another key",
        ),
        (
            '[keys]\nlook.why = "enter"',
            "c.toml, line 2: keys.look.why: enter always is look.open: choose another key",
        ),
        (
            '[keys]\nlook.why = "W"\nmove.down = "n"',
            "c.toml, line 3: keys.move.down: n is taken by events.next (next event): give one of the two another key",
        ),
        (
            '[keys]\nlook.why = "o"',
            "c.toml, line 2: keys.look.why: o is taken by look.what_if (what if: a setting with other values) "
            "in the place 'statistics': give one of the two another key",
        ),
        (
            '[keys]\nmove.up = "x"\nengine.abort = "X"',
            "c.toml, line 2: keys.move.up: x is taken (remove) in the place 'bookmarks': "
            "give one of the two another key",
        ),
        (
            '[keys]\nprompt.mode = "t"',
            "c.toml, line 2: keys.prompt.mode: t is typed into a prompt: a key with ctrl, or f1 to f12",
        ),
        (
            '[keys]\nprompt.mode = "ctrl+o"',
            "c.toml, line 2: keys.prompt.mode: ctrl+o is taken by prompt.settings (what goes with every prompt) "
            "in the place 'prompt': give one of the two another key",
        ),
        (
            'screenshots = "~nobody-is-called-so/p"',
            "c.toml, line 1: screenshots: ~nobody-is-called-so/p: there is no home folder of nobody-is-called-so: "
            "write the path out",
        ),
        ("zoom = " + "[" * 5_000, "c.toml: this is no config file: it is nested too deep"),
        ("theme = ", "c.toml, at its end: this is no TOML: invalid value"),
        ("a = 1\nb = = 2", "c.toml, line 2: this is no TOML: invalid value"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(text, "c.toml")
    assert (raised.value.message, raised.value.exit_code) == (message, 2)


def test_a_mark_of_the_encoding_is_no_part_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSCOPE_CONFIG", str(tmp_path / "c.toml"))
    (tmp_path / "c.toml").write_text("zoom = 5", encoding="utf-8-sig")
    assert read_config() == dataclasses.replace(DEFAULT, steps_per_column=5)


def test_a_number_of_more_digits_than_python_reads_is_told() -> None:
    with pytest.raises(ConfigError, match="this is no TOML: exceeds the limit"):
        parse_config("zoom = " + "9" * 5_000, "c.toml")


def test_two_keys_may_change_places() -> None:
    found = parse_config('[keys]\nevents.next = "N"\nevents.previous = "n"', "c.toml")
    assert found.keys == {"events.next": ("N",), "events.previous": ("n",)}


def test_a_file_is_read_from_where_the_variable_says_or_from_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVSCOPE_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_path() == tmp_path / "kvscope" / "config.toml"
    assert read_config() == DEFAULT
    (tmp_path / "kvscope").mkdir()
    config_path().write_text("zoom = 5")
    assert read_config() == dataclasses.replace(DEFAULT, steps_per_column=5)
    monkeypatch.setenv("KVSCOPE_CONFIG", str(tmp_path / "mine"))
    with pytest.raises(ConfigError) as raised:
        read_config()
    assert raised.value.message == f"there is no file {tmp_path / 'mine'}: KVSCOPE_CONFIG names it as the config file"
    (tmp_path / "mine").write_bytes(b"\xff")
    with pytest.raises(ConfigError) as raised:
        read_config()
    assert raised.value.message == f"cannot read the config file {tmp_path / 'mine'}: it is not UTF-8"


def test_the_printed_file_says_what_is_in_force_and_the_default_one_changes_nothing() -> None:
    other = parse_config(TEXT, "c.toml")
    again = parse_config(config_text(other), "printed")
    assert {**again.keys} == {
        action.name: other.keys.get(action.name, action.keys)
        for action in actions().values()
        if not action.variant_of and action.name != "leave.interrupt"
    }
    assert dataclasses.replace(again, keys=other.keys) == other
    commented = config_text(DEFAULT, is_commented_out=True)
    assert parse_config(commented, "printed") == DEFAULT
    uncommented = commented.replace("\n# ", "\n").replace('# theme = "dark"', 'theme = "dark"')
    assert 'time.back = ["left", "h"]' in uncommented


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        (":", "colon", ":"),
        ("colon", "colon", ":"),
        ("←", "left", "←"),
        ("shift+left", "shift+left", "shift+←"),
        ("shift+h", "H", "H"),
        ("Ctrl+E", "ctrl+e", "ctrl+e"),
        ("+", "plus", "+"),
        ("ctrl++", "ctrl+plus", "ctrl++"),
        ("esc", "escape", "esc"),
        ("PgDn", "pagedown", "pgdn"),
        (" ", "space", "space"),
        ("é", "é", "é"),
        ("F5", "f5", "f5"),
    ],
)
def test_names_of_keys(text: str, key: str, told: str) -> None:
    assert (parse_key(text), shown_key(parse_key(text))) == (key, told)


@pytest.mark.parametrize("text", ["", "dwon", "hyper+x", "ctrl+m", "ctrl+[", "backspac"])
def test_no_names_of_keys(text: str) -> None:
    with pytest.raises(KeyNameError):
        parse_key(text)


def test_no_key_does_two_things_by_default_and_every_key_has_words_in_the_help() -> None:
    assert clashes(Keys(actions()), places()) == []
    assert [action.name for action in actions().values() if action.name and not action.what] == []


def configured(text: str) -> KvscopeApp:
    return KvscopeApp(scenes.preemption()[0], config=parse_config(text, "c.toml"))


async def test_keys_do_what_they_are_configured_to_do_and_no_longer_what_they_did() -> None:
    app = configured(
        '[keys]\ntime.back = "K"\ntime.goto = "/"\nevents.search = ":"\nmove.up = ["n", "up"]\nevents.next = "J"'
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("K", "left", "h", "K")
        await settle(pilot)
        assert app.model.step == 64
        await pilot.press("slash", "1", "2", "enter")
        await settle(pilot)
        assert app.model.step == 12
        await pilot.press("colon")
        assert isinstance(app.focused, Input)
        assert app.focused.id == "search"
        await pilot.press("escape")
        selected = app.model.selected_id
        await pilot.press("n")
        await settle(pilot)
        assert (app.model.step, app.model.selected_id != selected) == (12, True)
        await pilot.press("J")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert app.model.step == 13


async def test_a_place_with_its_own_meaning_of_a_key_has_it_on_the_configured_one() -> None:
    app = configured('[keys]\nlook.why = "Q"\nevents.next = "ctrl+n"')
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("Q")
        await settle(pilot)
        assert isinstance(app.screen, WhyScreen)
        footer = shown(app.screen.query_one("#footer", LinesView).lines)
        assert "Q whole life" in footer
        assert "ctrl+n N its event" in footer
        await pilot.press("Q")
        assert app.screen.reading.shows_life


async def test_help_footer_palette_and_messages_show_the_configured_keys() -> None:
    app = configured(
        '[keys]\ntime.back = ["K", "left"]\nkeep.bookmark = "f5"\nlook.compare = "c"\nlook.divergence = []'
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "K → step" in shown(app.main_screen.footer.lines)
        palette = {command.title: command.help for command in app.get_system_commands(app.screen)}
        assert palette["Bookmark the step, with a note"] == "key f5"
        assert palette["One step back"] == "key K ←"
        assert palette["Choose the events of n and N"] == "key e"
        assert palette["Where two recordings part"] == "key —"
        await pilot.press("apostrophe", "c")
        assert [note.message for note in app._notifications][-1] == "step 66 is A: c elsewhere compares, D clears"
        await pilot.press("question_mark")
        await settle(pilot)
        assert isinstance(app.screen, TextModal)
        lines = [" ".join(line.split()) for line in shown(app.screen._lines).splitlines()]
        told = " | ".join(lines)
        assert "K ← one step back" in told
        assert "f5 bookmark the step, with a note" in told
        assert "ctrl+g picture of the screen (SVG)" in told


def test_the_keys_in_a_hint_are_those_that_are_configured() -> None:
    keys = Keys(actions(), {"events.next": ("f5",), "move.down": ()})
    assert keys.filled("{n} {N} go on, {j k} walk; n and {…} stay") == "f5 N go on, — k walk; n and … stay"
    hints = [keys.filled(workload.look_at) for workload in WORKLOADS]
    assert [hint for hint in hints if "{" in hint] == []
    assert "f5 goes from one to the next; w on a victim" in " ".join(hints)


async def test_hints_of_the_places_show_the_configured_keys() -> None:
    app = configured('[keys]\ntime.goto = "O"\nmove.up = "f6"\nmove.bottom = []\nlook.compare = "G"')
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("G", "left", "G", "right")
        await settle(pilot)
        assert "Move with ← → n N or O and what changed" in shown(app.screen.query_one("#steps", LinesView).lines)


async def test_enter_and_escape_stay_whatever_is_configured() -> None:
    app = configured('[keys]\nlook.open = "O"\nleave.up = []')
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("O")
        assert not isinstance(app.screen, MainScreen)
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)
        await pilot.press("enter")
        assert not isinstance(app.screen, MainScreen)


async def test_a_list_that_opens_above_a_place_is_walked_with_the_configured_keys() -> None:
    app = configured('[keys]\nmove.down = "s"\nlook.queue_order = []\nleave.help = "f1"')
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("f1")
        await settle(pilot)
        modal = app.screen
        assert isinstance(modal, TextModal)
        assert "more lines, s k scroll" in shown(modal._view.lines)
        await pilot.press("s", "s", "j")
        assert modal._first == 2
        await pilot.press("f1")
        assert isinstance(app.screen, MainScreen)


async def test_theme_ascii_zoom_and_speed_are_those_of_the_file() -> None:
    app = configured('theme = "light"\nascii = true\nzoom = 5\nspeed = 32')
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert (app.theme, app.is_ascii) == ("kvscope-light", True)
        assert (app.model.steps_per_column, app.model.steps_per_second) == (5, 32)
        assert "5 steps/col" in shown(app.main_screen.timeline_panel.lines)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 16)])
async def test_a_long_text_says_how_much_is_below_and_shows_every_line_whole(size: tuple[int, int]) -> None:
    """The frame hid the last two lines, the one that says so among them, and the ends of long ones."""
    app = scenes.screen(scenes.one_request())
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await pilot.press("question_mark")
        await settle(pilot)
        modal = app.screen
        assert isinstance(modal, TextModal)
        assert modal._view.region.intersection(modal._view.parent.content_region) == modal._view.region  # type: ignore[union-attr]
        left = len(modal._lines) - len(modal._view.lines)
        assert shown(modal._view.lines).splitlines()[-1] == f"… {left + 1} more lines, j k scroll, esc closes"
        if size[0] >= 80:
            assert "…" not in "".join(shown(modal._view.lines).splitlines()[:-1]).replace("2…9", "")
        await pilot.press("G")
        await settle(pilot)
        assert shown(modal._view.lines).splitlines()[-1] == shown(modal._lines).splitlines()[-1]
