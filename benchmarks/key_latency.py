"""From a key to its effect on the screen, while an engine decodes 64 requests: p50, p90, p99 and the worst.

    python benchmarks/key_latency.py [--model smollm2-135m] [--requests 64] [--keys 200] [--size 120x40] [--json]

`kvscope live` runs in a pseudo-terminal as users run it: engine in a process of its own, recording on. The screen also
changes by itself with every step, so a key counts as painted only when its own effect stands on the screen: the
selection on another row for `j` and `k` (while the screen follows the engine), the step number for `←` and `→` (while
it is held).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from painted_screen import TerminalCommand

from kvscope.control import Shutdown, Submit
from kvscope.control_client import ControlClient
from kvscope.session.runtime_folder import RUNTIME_FOLDER_VARIABLE, running_engines

LEFT, RIGHT, END, ESCAPE = b"\x1b[D", b"\x1b[C", b"$", b"\x1b"
TIMEOUT_S = 120.0
KEY_TIMEOUT_S = 5.0
PAUSE_S = (0.03, 0.13)
"""Between two keys; varied, so that they do not fall into step with the engine."""
KEYS_IN_A_ROW = 10
NUM_STEPS_BEFORE = 20
"""All requests decode by then, and going back meets no first step."""
BUDGET_MS = 50.0


@dataclass(frozen=True)
class Measured:
    """One key."""

    kind: str
    latency_ms: float


def main() -> None:
    """Parses, runs, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory(prefix="kv", ignore_cleanup_errors=True) as folder:
        os.environ[RUNTIME_FOLDER_VARIABLE] = f"{folder}/run"
        command = [sys.executable, "-c", "from kvscope.cli.main import main; main()", "live", "--model", options.model]
        with TerminalCommand([*command, "--record", f"{folder}/run.db"], columns, rows) as terminal:
            client = start_requests(terminal, options.requests)
            try:
                first_step, begin = client.status.step, time.monotonic()
                measured = measure(terminal, client, options.keys)
                steps_a_second = (client.status.step - first_step) / (time.monotonic() - begin)
                num_running = client.status.num_running
            finally:
                client.call(Shutdown())
                client.disconnect()
    report(measured, options, steps_a_second, num_running)


def start_requests(terminal: TerminalCommand, num_requests: int) -> ControlClient:
    """Waits for the engine, gives it the requests, and waits until all of them decode."""
    terminal.wait_until(lambda: bool(running_engines()), timeout_s=TIMEOUT_S)
    client = ControlClient(Path(running_engines()[0].socket)).start()
    wait_for(terminal, lambda: client.status.phase == "idle", "the engine is idle")
    for number in range(num_requests):
        prompt = f"Question {number}: what do you know of the number {number * 7919}?"
        sampling = {"max_tokens": 1500, "ignore_eos": True}
        client.call(Submit(prompt=prompt, is_chat=False, sampling=sampling))
    wait_for(terminal, lambda: client.status.num_running == num_requests, f"{num_requests} requests run")
    first_step = client.status.step
    wait_for(terminal, lambda: client.status.step >= first_step + NUM_STEPS_BEFORE, "there are steps to go back to")
    terminal.press(ESCAPE)  # out of the prompt line, to the keys
    wait_for(terminal, lambda: selected_row(terminal) is not None, "a request is selected")
    terminal.wait_until(lambda: False, timeout_s=2.0)
    return client


def wait_for(terminal: TerminalCommand, is_so: Callable[[], bool], what: str) -> None:
    """Lets the screen paint until something holds. Ends the script where it does not come."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        terminal.wait_until(is_so, timeout_s=0.1)
        if time.monotonic() > deadline:
            sys.exit(f"it did not come that {what}; the screen:\n" + "\n".join(terminal.screen.lines))


def measure(terminal: TerminalCommand, client: ControlClient, num_keys: int) -> list[Measured]:
    """Presses keys in turns: some that move the selection while the screen follows, some that move in time."""
    chance = random.Random(7)
    measured: list[Measured] = []
    while len(measured) < num_keys and client.status.num_running:
        for kind, keys in (("select", b"jk"), ("time", None)):
            for _ in range(KEYS_IN_A_ROW):
                terminal.wait_until(lambda: False, timeout_s=chance.uniform(*PAUSE_S))
                key = bytes([chance.choice(keys)]) if keys is not None else chance.choice((LEFT, LEFT, RIGHT))
                measured.append(Measured(kind, press(terminal, key)))
            if kind == "time":
                terminal.press(END)
                wait_for(terminal, lambda: "LIVE" in terminal.screen.lines[0], "the screen follows again")
    return measured


def press(terminal: TerminalCommand, key: bytes) -> float:
    """Returns the milliseconds until the key's effect is painted."""
    look = shown_step if key in (LEFT, RIGHT) else selected_row
    before = look(terminal)
    begin = time.perf_counter()
    terminal.press(key)
    if not terminal.wait_until(lambda: look(terminal) not in (before, None), timeout_s=KEY_TIMEOUT_S):
        if key in (RIGHT, b"j", b"k"):
            return press(terminal, {RIGHT: LEFT, b"j": b"k", b"k": b"j"}[key])  # at the end already: nothing to paint
        sys.exit(f"{key!r} had no effect; the screen:\n" + "\n".join(terminal.screen.lines))
    return (time.perf_counter() - begin) * 1000


def selected_row(terminal: TerminalCommand) -> str | None:
    """Returns the request beside the mark of the selection, in the queues."""
    for line in terminal.screen.lines:
        if match := re.search(r"▸\s*(\S+)", line):
            return match[1]
    return None


def shown_step(terminal: TerminalCommand) -> int | None:
    """Returns the step that the header names; following counts as one place, -1, whatever the step."""
    header = terminal.screen.lines[0]
    match = re.search(r"step\s+(\d+)\s*/", header)
    if match is None or "LIVE" in header:
        return -1
    return int(match[1])


def report(measured: list[Measured], options: argparse.Namespace, steps_a_second: float, num_running: int) -> None:
    """Prints the percentiles of all keys and of each kind."""
    figures = {
        kind: percentiles([key.latency_ms for key in measured if kind in ("all", key.kind)])
        for kind in ("all", "select", "time")
    }
    if options.as_json:
        print(
            json.dumps(
                {
                    "model": options.model,
                    "size": options.size,
                    "num_running": num_running,
                    "steps_a_second": round(steps_a_second, 2),
                    "latency_ms": figures,
                }
            )
        )
        return
    print(f"{options.size}, {options.model}, {num_running} requests decoding at {steps_a_second:.1f} steps/s")
    for kind, values in figures.items():
        words = ", ".join(f"{name} {value:.1f} ms" for name, value in values.items() if name != "num_keys")
        print(f"  {kind:<7}{values['num_keys']:>4} keys: {words}")
    verdict = "within" if figures["all"]["p99"] <= BUDGET_MS else "over"
    print(f"p99 is {verdict} the budget of {BUDGET_MS:.0f} ms")


def percentiles(latencies_ms: list[float]) -> dict[str, float]:
    """Returns nearest-rank percentiles."""
    ordered = sorted(latencies_ms)
    figures: dict[str, float] = {"num_keys": len(ordered)}
    for name, percent in {"p50": 50, "p90": 90, "p99": 99, "worst": 100}.items():
        rank = max(-(-percent * len(ordered) // 100), 1)
        figures[name] = round(ordered[rank - 1], 2)
    return figures


if __name__ == "__main__":
    main()
