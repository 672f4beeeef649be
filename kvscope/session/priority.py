"""Who gets a processor first, where an engine keeps all of them busy: the screen that shows it."""

from __future__ import annotations

import os

ENGINE_NICENESS = 5
"""Of an engine that a screen started: where both want a processor the screen gets three quarters of its time (Linux),
and it wants one for some milliseconds a key. While nobody presses keys the engine loses next to nothing."""


def yield_to_the_screen() -> None:
    """Lowers this process's priority, and that of what it starts from now on."""
    os.nice(ENGINE_NICENESS)
