"""What the screen writes to a terminal that is gone."""

from __future__ import annotations

import io
import os

import pytest
from textual import constants, events
from textual.drivers import linux_driver
from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread
from textual.drivers.linux_driver import LinuxDriver

from kvscope.tui.driver import KeyParser, LastingFile, TerminalDriver
from tests.tui import scenes


def test_the_thread_that_writes_outlives_the_terminal() -> None:
    """It ended with the first write that failed; the queue filled up, and leaving waited for ever."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    file = LastingFile(os.fdopen(write_end, "w", buffering=1))
    writer = WriterThread(file)  # type: ignore[arg-type]
    writer.start()
    for _ in range(3 * MAX_QUEUED_WRITES):
        writer.write("painted for nobody\n")
    writer.stop()
    assert not writer.is_alive()


def test_what_can_be_written_is_written() -> None:
    inner = io.StringIO()
    file = LastingFile(inner)
    assert (file.write("abc"), inner.getvalue(), file.isatty()) == (3, "abc", False)
    inner.close()
    assert file.write("de") == 2
    file.flush()


def test_the_screen_runs_on_this_driver_wherever_textual_has_its_own_for_terminals() -> None:
    app = scenes.screen(scenes.one_request())
    assert app.driver_class is TerminalDriver
    assert issubclass(TerminalDriver, LinuxDriver)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("\x1bl", ["escape", "l"]),
        ("\x1bL", ["escape", "L"]),
        ("\x1b:", ["escape", "colon"]),
        ("\x1b0", ["escape", "0"]),  # Textual: º, as if alt and 0 had been typed on a Mac
        ("\x1bb", ["escape", "b"]),  # Textual: ctrl and an arrow
        ("\x1bé", ["escape", "é"]),
        ("\x1b", ["escape"]),
        ("\x1b[", ["escape", "left_square_bracket"]),
        ("\x1b[D", ["left"]),
        ("\x1b[1;5D", ["ctrl+left"]),
        ("\x1bOP", ["f1"]),
        ("\x1b\t", ["shift+tab"]),
        ("º", ["º"]),
    ],
)
def test_escape_and_a_key_behind_it_are_two_keys(typed: str, keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """They came as one with alt, which does nothing here: both were lost."""
    monkeypatch.setattr(constants, "ESCAPE_DELAY", 0.0)
    parser = KeyParser()
    heard = [*parser.feed(typed), *parser.tick()]
    assert [event.key for event in heard if isinstance(event, events.Key)] == keys


def test_the_driver_reads_keys_with_this_parser() -> None:
    assert vars(linux_driver)["XTermParser"] is KeyParser
