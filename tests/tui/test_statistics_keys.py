"""Statistics that take long: what was read so far is shown, and goes on when the place is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.analysis.detectors import find_all
from kvscope.analysis.finding import Finding
from kvscope.replay import open_recording
from kvscope.tui.app import KvscopeApp
from kvscope.tui.markers import Reading
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.screens.statistics import StatisticsScreen
from kvscope.tui.view.statistics import worst_findings
from tests.recording.runs import record
from tests.tui import scenes
from tests.tui.scenes import settle
from tests.tui.test_finding_keys import done, shown

SIZE = (120, 40)


def test_the_detectors_tell_what_the_queues_did_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.analysis.step_runs.EARLY_STEPS", 25)
    told: list[tuple[int, list[tuple[str, int, int]]]] = []

    def early(findings: list[Finding], step: int) -> None:
        told.append((step, [(found.kind, found.first_step, found.num_steps) for found in findings]))

    whole = find_all(scenes.preemption()[0], early)
    cycle, first_head = ("preemption_cycle", 20, 4), ("head_of_line_blocking", 30, 5)
    second_head, prefill = ("head_of_line_blocking", 40, 2), ("long_prefill_among_decoders", 21, 2)
    assert told == [
        (24, [cycle]),
        (36, [cycle, first_head, prefill]),
        (54, [cycle, first_head, second_head, prefill]),
    ]
    assert [found.kind for found in whole][4:] == ["hits_lost_to_eviction"]  # read last, for the whole run


async def test_what_is_read_goes_on_when_the_place_is_left_and_is_there_when_one_comes_back(tmp_path: Path) -> None:
    path = record(tmp_path / "run.db", scenes.preempting_run().sink.steps)
    app = KvscopeApp(open_recording(path), open_timeline=open_recording)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("t", "escape")
        assert isinstance(app.screen, MainScreen)
        await done(pilot)
        reading = app.places._statistics[path]
        while not reading.is_complete:
            await done(pilot)
        assert not app.places.are_statistics_looked_at
        await pilot.press("t")
        await settle(pilot)
        assert isinstance(app.screen, StatisticsScreen)
        assert (app.screen.reading is reading, reading.waiting_words) == (True, "")
        assert "5 found, enter jumps" in shown(app.screen.findings.lines)
        assert app.places.are_statistics_looked_at


async def test_early_findings_are_shown_with_how_far_the_detectors_are_and_mark_the_timeline(tmp_path: Path) -> None:
    path = record(tmp_path / "run.db", scenes.preempting_run().sink.steps)
    app = KvscopeApp(open_recording(path), open_timeline=open_recording)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("t")
        await done(pilot)
        assert isinstance(app.screen, StatisticsScreen)
        reading = app.screen.reading
        findings = find_all(scenes.preemption()[0])
        reading._findings.value, app.markers._readings = None, {}
        watch = app.run_desk._watched(open_recording(path))
        watch.step, watch.early = 40, Reading(40, worst_findings(findings[:2]))
        reading._findings.watch, reading._findings.key = watch, "findings"
        reading._more()
        app.screen._more_to_show()
        await settle(pilot)
        rows = shown(app.screen.findings.lines)
        assert "2 found" in rows.splitlines()[0]
        assert "… detectors at step 40 of 66 …" in rows
        assert [found.first_step for found in app.model.marks.findings] == [found.first_step for found in findings[:2]]
        watch.close()
