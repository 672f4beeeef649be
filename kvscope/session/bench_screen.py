"""From a key to the painted screen, in a terminal of its own, as a user has it.

A key counts as painted with the last byte of the burst of output that brings its effect: the step that the header
names for keys that move in time, the marked request for keys that select. A burst has ended when nothing has come for
25 ms; that wait is not counted. While an engine runs its news are painted all the time, so there 5 ms end a burst: what
of them falls into it is counted as the key's.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kvscope.errors import KvscopeError
from kvscope.session.bench_busy import start_busy_engine
from kvscope.session.bench_terminal import TerminalCommand

LEFT, RIGHT, END, ENTER = b"\x1b[D", b"\x1b[C", b"$", b"\r"
QUIET_S, LIVE_QUIET_S = 0.025, 0.005
_PAUSE_S = (0.03, 0.13)
"""Between two keys; varied, so that they do not fall into step with the engine."""
_KEY_TIMEOUT_S = 10.0
_START_TIMEOUT_S = 60.0
_KEYS_IN_A_ROW = 10
_GOTO_LINE = "steps 0 to "
"""What stands below the line into which a step is typed."""
_NUM_STEPS_BEFORE = 200
"""Of a live engine, before the first key: going back meets no first step."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a terminal, in cells."""

    columns: int
    rows: int

    @classmethod
    def parse(cls, text: str) -> Size:
        """Returns the size written as 120x40. Raises `ValueError`."""
        columns, rows = map(int, text.split("x"))
        return cls(columns, rows)

    def __str__(self) -> str:
        return f"{self.columns}x{self.rows}"


@dataclass(frozen=True, slots=True)
class KeyTime:
    """One key."""

    kind: str
    """`time`: a step or ten, either way; `select`: another request; `goto`: any step of the recording."""
    latency_ms: float
    cpu_ms: float
    """Processor time of the screen's process meanwhile: what a machine that others use disturbs least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenTimes:
    """What a screen took."""

    keys: list[KeyTime]
    first_paint_s: float
    """From the start of the process to the header with the step."""
    rss_before_bytes: int
    rss_after_bytes: int
    """Resident memory of the screen's process, before the first key and after the last."""
    num_steps: int


class ScreenFailed(KvscopeError):
    """The screen did not show what a key has to bring."""


class Screen:
    """`kvscope replay RECORDING` in a terminal."""

    def __init__(self, recording: Path, size: Size, *, quiet_s: float = QUIET_S) -> None:
        """Starts it and waits until it stands. `quiet_s` ends a burst of output."""
        command = [sys.executable, "-P", "-c", "from kvscope.cli.main import main; main()", "replay", str(recording)]
        self._quiet_s = quiet_s
        begin = time.perf_counter()
        self._terminal = TerminalCommand(command, size.columns, size.rows)
        self.wait_for(lambda: self.step is not None, "the first screen", _START_TIMEOUT_S)
        self.first_paint_s = time.perf_counter() - begin
        self.num_rows_up = 0
        """How far up the selection has been moved."""
        self._terminal.wait_until_quiet(0.5, timeout_s=3.0)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self._terminal.__exit__()

    @property
    def step(self) -> int | None:
        """The step that the header names."""
        match = re.search(r"step\s+(\d+)\s*/", self._terminal.screen.lines[0])
        return int(match[1]) if match else None

    @property
    def last_step(self) -> int:
        """The last step that the header names, -1 where it names none."""
        match = re.search(r"step\s+\d+\s*/\s*(\d+)", self._terminal.screen.lines[0])
        return int(match[1]) if match else -1

    @property
    def is_following(self) -> bool:
        """The screen stays at the end of a recording that grows."""
        return any(word in self._terminal.screen.lines[0] for word in ("FOLLOWING", "LIVE"))

    @property
    def is_asking(self) -> bool:
        """A line for typing a step stands on the screen."""
        return any(_GOTO_LINE in line for line in self._terminal.screen.lines)

    @property
    def selected(self) -> str | None:
        """The request beside the mark of the selection, in the queues."""
        for line in self._terminal.screen.lines:
            if match := re.search(r"▸\s*(\S+)", line):
                return match[1]
        return None

    @property
    def can_go_down(self) -> bool:
        """A row stands below the selected one, in the queues."""
        lines = self._terminal.screen.lines
        below = next((lines[row + 1] for row, line in enumerate(lines[:-2]) if "▸" in line), "")
        return bool(below.split("│")[0].strip())

    @property
    def can_go_up(self) -> bool:
        """A request stands above the selected one: where the selected one has ended, the first may be selected."""
        lines = self._terminal.screen.lines
        above = next((lines[row - 1] for row, line in enumerate(lines) if row and "▸" in line), "")
        return bool(above.split("│")[0].strip()) and not above.lstrip().startswith(("RUNNING", "WAITING", "━", "─"))

    def press(self, kind: str, keys: bytes, is_effect: Callable[[], bool], what: str) -> KeyTime:
        """Returns how long it takes until the effect is painted. Raises `ScreenFailed` where it does not come."""
        cpu_ms = self._terminal.cpu_ms()
        begin = time.perf_counter()
        self._terminal.press(keys)
        self.wait_for(is_effect, what, _KEY_TIMEOUT_S)
        latency_ms = (self._terminal.wait_until_quiet(self._quiet_s, timeout_s=2.0) - begin) * 1000
        return KeyTime(kind, latency_ms, self._terminal.cpu_ms() - cpu_ms)

    def type(self, keys: bytes) -> None:
        """Presses keys whose effect is of no interest, and lets the screen come to rest."""
        self._terminal.press(keys)
        self._terminal.wait_until_quiet(QUIET_S, timeout_s=2.0)

    def idle(self, seconds: float) -> None:
        """Lets the screen paint what comes meanwhile."""
        self._terminal.wait_until(lambda: False, timeout_s=seconds)

    def resident_bytes(self) -> int:
        """Returns the memory that the screen's process holds now."""
        return self._terminal.resident_bytes()

    def wait_for(self, is_so: Callable[[], bool], what: str, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Paints until something stands on the screen. Raises `ScreenFailed` where it does not come."""
        try:
            if self._terminal.wait_until(is_so, timeout_s=timeout_s):
                return
        except OSError as error:
            what = f"{what}: the process has ended ({error.strerror})"
        lines = "\n".join(line for line in self._terminal.screen.lines if line)
        raise ScreenFailed(f"the screen did not show {what} within {timeout_s:.0f} s; it shows:\n{lines}")


def measure_replay(
    recording: Path, size: Size, num_keys: int, num_gotos: int, on_key: Callable[[int], None]
) -> ScreenTimes:
    """Moves in a closed recording: single steps, tens, selections by chance from its middle on, then any step."""
    chance = random.Random(7)
    with Screen(recording, size) as screen:
        last = screen.last_step
        _go_to(screen, last // 2)
        before = screen.resident_bytes()
        keys = []
        for _ in range(num_keys):
            screen.idle(chance.uniform(*_PAUSE_S))
            keys.append(_step(screen, chance) if chance.random() < 0.75 else _select(screen, chance))
            on_key(len(keys))
        for _ in range(num_gotos):
            keys.append(_go_to(screen, chance.randrange(last)))
            on_key(len(keys))
        return ScreenTimes(
            keys=keys,
            first_paint_s=screen.first_paint_s,
            rss_before_bytes=before,
            rss_after_bytes=screen.resident_bytes(),
            num_steps=last + 1,
        )


def measure_live(
    size: Size, num_keys: int, on_key: Callable[[int], None], *, num_running: int = 256, forward_ms: float = 20.0
) -> ScreenTimes:
    """Moves in a recording that a busy engine writes: selections while the screen follows, steps while it is held."""
    chance = random.Random(7)
    with _busy_recording(num_running, forward_ms) as recording, Screen(recording, size, quiet_s=LIVE_QUIET_S) as screen:
        screen.press("end", END, lambda: screen.is_following, "that it follows")
        screen.wait_for(lambda: screen.last_step >= _NUM_STEPS_BEFORE, f"step {_NUM_STEPS_BEFORE}")
        before = screen.resident_bytes()
        keys: list[KeyTime] = []
        while len(keys) < num_keys:
            for is_selecting in (True, False):
                for _ in range(_KEYS_IN_A_ROW):
                    screen.idle(chance.uniform(*_PAUSE_S))
                    keys.append(_select(screen, chance) if is_selecting else _step(screen, chance))
                    on_key(len(keys))
            screen.press("end", END, lambda: screen.is_following, "that it follows")
        return ScreenTimes(
            keys=keys,
            first_paint_s=screen.first_paint_s,
            rss_before_bytes=before,
            rss_after_bytes=screen.resident_bytes(),
            num_steps=screen.last_step + 1,
        )


@contextlib.contextmanager
def _busy_recording(num_running: int, forward_ms: float) -> Iterator[Path]:
    """Yields the recording of a busy engine, once it has some steps; ends the engine."""
    with tempfile.TemporaryDirectory(prefix="kv", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "busy.db"
        engine = start_busy_engine(path, num_running, forward_ms)
        assert engine.stdin is not None
        try:
            deadline = time.monotonic() + _START_TIMEOUT_S
            while not path.exists() or path.stat().st_size < 100_000:
                if engine.poll() is not None or time.monotonic() > deadline:
                    raise ScreenFailed(f"the busy engine wrote nothing within {_START_TIMEOUT_S:.0f} s")
                time.sleep(0.1)
            yield path
        finally:
            engine.stdin.close()
            engine.wait(timeout=30)


def _step(screen: Screen, chance: random.Random) -> KeyTime:
    """A step or ten, either way."""
    if screen.is_following:
        return screen.press("time", LEFT, lambda: not screen.is_following, "the step before")
    here, last = screen.step or 0, screen.last_step
    ways = ((LEFT, -1), (RIGHT, 1), (LEFT, -1), (RIGHT, 1), (b"H", -10), (b"L", 10))
    key, by = chance.choice([(key, by) for key, by in ways if 0 <= here + by < last])
    return screen.press("time", key, lambda: screen.step == here + by, f"step {here + by}")


def _select(screen: Screen, chance: random.Random) -> KeyTime:
    """Another request: one row up or down, up where there is none below, and not far from where it began."""
    before = screen.selected
    wants_up = screen.num_rows_up < 8 and chance.random() < 0.5
    is_up = not screen.can_go_down or (wants_up and screen.can_go_up)
    screen.num_rows_up += 1 if is_up else -1
    is_other = functools.partial(_is_other, screen, before)
    return screen.press("select", b"k" if is_up else b"j", is_other, "another request")


def _is_other(screen: Screen, before: str | None) -> bool:
    return screen.selected not in (before, None)


def _go_to(screen: Screen, step: int) -> KeyTime:
    """From Enter behind a step's number to that step."""
    screen.type(f":{step}".encode())
    return screen.press("goto", ENTER, lambda: screen.step == step and not screen.is_asking, f"step {step}")
