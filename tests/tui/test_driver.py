"""What the screen writes to a terminal that is gone."""

from __future__ import annotations

import io
import os

from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread
from textual.drivers.linux_driver import LinuxDriver

from kvscope.tui.driver import LastingFile, TerminalDriver
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
