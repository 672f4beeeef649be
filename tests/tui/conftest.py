"""Keys by pilot are keys of a person: each is pressed when the one before it has done its work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.pilot import Pilot

from kvscope.tui.app import KvscopeApp


@pytest.fixture(autouse=True)
def no_detectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing marks the timeline by itself, at some moment that no test knows; tests of the marks allow it."""
    monkeypatch.setattr("kvscope.tui.markers.MAX_STEPS", 0)


@pytest.fixture(autouse=True)
def keys_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a press wait until no key is held back: else what follows would be looked at too early."""
    press_keys = Pilot.press

    async def press(pilot: Pilot[Any], *keys: str) -> None:
        for key in keys:
            await press_keys(pilot, key)
            while isinstance(pilot.app, KvscopeApp) and pilot.app.is_running and pilot.app.typed_ahead.is_holding:
                await asyncio.sleep(0.002)

    monkeypatch.setattr(Pilot, "press", press)
