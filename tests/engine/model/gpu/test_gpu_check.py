"""`benchmarks/gpu_check.py` without a GPU: every section comes to its end; what becomes of one that does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.rows import Row, Rows, has_missed, has_wrong, read_rows
from benchmarks.gpu_check import TIME_LIMITS_S, TOTAL_S, SectionResult, run_apart

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "gpu_check.py"


def test_a_dry_run_comes_to_its_end_and_finds_all_well(tmp_path: Path) -> None:
    kept = tmp_path / "check.json"
    command = [sys.executable, str(SCRIPT), "--cpu-dry-run", "--in-process", "--json", str(kept)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    sections = json.loads(kept.read_text())["sections"]
    assert {name: section["state"] for name, section in sections.items()} == dict.fromkeys(TIME_LIMITS_S, "done")
    checked = {name: sum(row["is_ok"] is True for row in section["rows"]) for name, section in sections.items()}
    assert checked == {
        "machine": 0,
        "kernels": 17,
        "rates": 0,
        "tokens": 3,
        "graphs": 2,
        "throughput": 0,
        "recorder": 0,
    }


def test_without_a_gpu_it_says_so_and_runs_nothing() -> None:
    no_gpu = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(SCRIPT)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=no_gpu)
    assert run.returncode == 2
    assert "torch finds no CUDA GPU; --cpu-dry-run tries the check itself" in run.stdout
    assert "kernels" not in run.stdout.splitlines()


@pytest.mark.parametrize(
    ("program", "limit_s", "state"),
    [
        ("pass", 60.0, "done"),
        ("raise SystemExit(1)", 60.0, "failed"),
        ("import os; os.kill(os.getpid(), 9)", 60.0, "crashed"),
        ("import time; time.sleep(600)", 3.0, "timeout"),
    ],
)
def test_a_section_that_ends_badly_is_named_and_what_it_found_is_kept(program: str, limit_s: float, state: str) -> None:
    """The rows that it left before are there whatever became of it."""
    row = json.dumps([{"name": "found", "value": 1}])
    leave = f"import pathlib, sys; pathlib.Path(sys.argv[1]).write_text({row!r}); {program}"
    result = run_apart("some", [sys.executable, "-c", leave], limit_s)
    assert (result.name, result.state) == ("some", state)
    assert result.rows == [Row(name="found", value=1)]
    assert result.is_well == (state == "done")


def test_limits_are_held_nan_is_none_and_a_missed_goal_is_no_error(tmp_path: Path) -> None:
    kept = tmp_path / "rows.json"
    rows = Rows(kept)
    rows.check("close", 1.0, 1.0)
    rows.check_equal("equal", 3, 3)
    rows.goal("fast", 0.7, 0.8)
    assert (has_wrong(rows.rows), has_missed(rows.rows)) == (False, True)
    assert SectionResult("some", "done", 0.0, rows.rows).is_well
    rows.check("far", 1.1, 1.0)
    rows.check("nan", float("nan"), 1.0)
    rows.check_equal("other", 3, 4)
    assert [row.is_ok for row in read_rows(kept)] == [True, True, False, False, False, False]
    assert not SectionResult("some", "done", 0.0, rows.rows).is_well
    assert read_rows(tmp_path / "none.json") == []


def test_what_fails_is_noted_as_wrong_and_the_rest_has_its_turn(tmp_path: Path) -> None:
    kept = tmp_path / "rows.json"
    rows = Rows(kept)
    with rows.attempt("first"):
        raise ValueError("no\nlong story")
    with rows.attempt("second"):
        rows.add("found", 1)
    found = [(row.name, row.value, row.is_ok) for row in read_rows(kept)]
    assert found == [("first", "ValueError: no", False), ("found", 1, None)]


def test_all_sections_together_end_within_six_minutes() -> None:
    """Whatever hangs: the total bounds each section, and starting processes takes seconds."""
    assert TOTAL_S <= 350
    assert max(TIME_LIMITS_S.values()) < TOTAL_S / 2
