"""The screen over real engines in processes of their own: a prompt, a workload, a restart, and what they leave."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope.replay import open_recording
from kvscope.session.options import EngineOptions
from kvscope.session.runtime_folder import RUNTIME_FOLDER_VARIABLE
from kvscope.session.starter import EngineStarter
from kvscope.tui.app import KvscopeApp
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.restart import RestartForm
from kvscope.tui.screens.workloads import WorkloadForm
from tests.tui.test_driving_keys import below, fill, until

TIMEOUT_S = 60.0


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path for sockets and recordings."""
    with tempfile.TemporaryDirectory(prefix="kv", ignore_cleanup_errors=True) as name:
        monkeypatch.setenv(RUNTIME_FOLDER_VARIABLE, f"{name}/run")
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        yield Path(name)


@pytest.fixture
def starter(folder: Path) -> Iterator[EngineStarter]:
    """An engine with a large pool; whatever is started is ended."""
    options = EngineOptions(
        model="toy",
        dtype="float32",
        settings={"block_size": 8},
        sampling={"max_tokens": 2},
        recording=str(folder / "r.db"),
    )
    starter = EngineStarter(options)
    spawned = list(starter.started)
    yield starter
    for engine in {id(engine): engine for engine in (*spawned, *starter.started)}.values():
        engine.client.disconnect()
        engine.spawned.process.terminate()
        engine.spawned.process.wait(TIMEOUT_S)


def count(recording: Path, sql: str) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as connection:
        (found,) = connection.execute(sql).fetchone()
        return int(found)


async def test_a_storm_that_needs_a_smaller_pool_is_run_after_a_restart_and_the_first_recording_stays(
    folder: Path, starter: EngineStarter
) -> None:
    app = KvscopeApp(None, starter.current.client, open_timeline=open_recording, starter=starter)
    first = starter.current
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: first.client.status.phase == "idle")
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: app.model.last_step >= 0 and first.client.status.phase == "idle")
        await pilot.press("escape", "W", "3")
        await until(pilot, lambda: isinstance(app.screen, WorkloadForm) and "restarts the engine" in below(app))
        for name, text in {"num_requests": "4", "num_prompt_tokens": "16", "num_output_tokens": "24"}.items():
            await fill(pilot, name, text)
        await until(pilot, lambda: "ctrl+r restarts the engine with num_gpu_blocks 14" in below(app))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, RestartForm))

        await fill(pilot, "max_model_len", "9999")
        await pilot.press("enter")
        await until(pilot, lambda: "max_model_len (9999) is more than toy was made for (4096)" in below(app))
        assert (app.model.control, first.client.status.phase) == (first.client, "idle")

        await fill(pilot, "max_model_len", "")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, WorkloadForm))
        second = starter.current
        assert (app.model.control, second.recording) == (second.client, folder / "r-2.db")
        await until(pilot, lambda: first.client.status.phase == "stopped")
        await until(pilot, lambda: "preemptions that throw away" in below(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await until(pilot, lambda: second.client.status.step > 0 and second.client.status.phase == "idle")
        await pilot.press("a")
        await until(pilot, lambda: app.model.timeline is not None and app.model.timeline.path == first.recording)
        assert app.model.status is None
        await pilot.press("q")
        await until(pilot, lambda: app._exit)
    second.spawned.process.wait(TIMEOUT_S)
    assert count(first.recording, "select value from meta where key = 'closed'") == 1
    assert count(first.recording, "select count(*) from requests") == 1
    assert count(second.recording, "select count(*) from request_preempted") > 0
    assert len(list(folder.glob("*.db"))) == 2
