"""`kvscope lab`: the list, a report, its JSON, and what is refused before anything runs. No time is judged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvscope.analysis.text import cell_width
from kvscope.cli.lab_report import figure_text
from kvscope.session.labs import LABS
from kvscope.session.labs.figures import DURATION, STEPS, UNUSED_SLOTS
from tests.cli.command_line import CommandLine


@pytest.fixture
def kvscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


def test_without_a_name_every_lab_is_listed_with_its_claim(kvscope: CommandLine) -> None:
    outcome = kvscope("lab")
    assert (outcome.exit_code, outcome.err) == (0, "")
    assert [line for line in outcome.out.splitlines() if re.fullmatch(r"[a-z-]+", line)] == [lab.name for lab in LABS]
    listed = json.loads(kvscope("lab", "--json").out)
    assert [(lab["lab"], lab["claim"]) for lab in listed] == [(lab.name, lab.claim) for lab in LABS]


def test_a_report_fits_80_columns_and_keeps_counts_and_times_apart(kvscope: CommandLine) -> None:
    outcome = kvscope("lab", "prefix-caching", "--model", "toy", "--rounds", "2", "--keep", "kept")
    assert (outcome.exit_code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert max(map(cell_width, lines)) <= 80
    counts, times = (
        lines.index("Counts, exact"),
        lines.index("Times, the median of 2, below it the smallest and the largest"),
    )
    assert lines[counts + 1 : counts + 4] == [
        "               hit tokens  prefill tokens  decode tokens",
        "  caching-off           0           2,016             30",
        "  caching-on        1,600             416             30",
    ]
    rows = lines[times + 2 : times + 6]
    assert [row[:13].strip() for row in rows] == ["caching-off", "", "caching-on", ""]
    assert [row.count("–") for row in rows] == [0, 4, 0, 4]
    assert "  ✓ Decoding computes the same number of tokens. Yes." in lines
    assert "  kvscope replay kept/prefix-caching/caching-on-1.db" in lines
    recordings = sorted(path.name for path in (kvscope.folder / "kept" / "prefix-caching").iterdir())
    assert recordings == [f"caching-{which}-{number}.db" for which in ("off", "on") for number in (1, 2)]


def test_json_has_the_figures_of_every_round_and_no_path_of_what_does_not_stay(kvscope: CommandLine) -> None:
    outcome = kvscope("lab", "reservation", "--model", "toy", "--rounds", "1", "--json")
    assert (outcome.exit_code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert (found["lab"], found["model"], found["num_rounds"]) == ("reservation", "toy", 1)
    assert [variant["settings"]["scheduler_reserve_full_isl"] for variant in found["variants"]] == [False, True]
    for variant in found["variants"]:
        (only,) = variant["rounds"]
        assert only.pop("recording") is None
        assert set(only) == set(found["figures"])
        assert only["ttft_p50_ms"] > 0
    assert [point["outcome"] for point in found["expectations"]] == [
        "borne out",
        "borne out",
        "not borne out",
        "borne out",
    ]
    assert list(kvscope.folder.rglob("*.db")) == []


def test_what_is_refused(kvscope: CommandLine) -> None:
    outcome = kvscope("lab", "watermarks")
    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err == "kvscope: there is no lab 'watermarks': did you mean watermark? `kvscope lab` lists them\n"
    (kvscope.folder / "full" / "watermark").mkdir(parents=True)
    (kvscope.folder / "full" / "watermark" / "mine").touch()
    outcome = kvscope("lab", "watermark", "--model", "toy", "--keep", "full")
    assert (outcome.exit_code, outcome.out) == (2, "")
    assert outcome.err == "kvscope: full/watermark has files already: name another folder\n"
    outcome = kvscope("lab", "watermark", "--model", "toy", "--keep", "full/watermark/mine")
    assert (outcome.exit_code, outcome.err) == (
        2,
        "kvscope: cannot make the folder full/watermark/mine/watermark: Not a directory\n",
    )


def test_figures_have_about_three_digits() -> None:
    assert [figure_text(DURATION, value) for value in (1234.56, 99.94, 1.0, 0.0614, None)] == [
        "1,235",
        "99.9",
        "1.0",
        "0.061",
        "–",
    ]
    assert [figure_text(STEPS, 84.0), figure_text(STEPS, 1.643), figure_text(UNUSED_SLOTS, 0.291)] == [
        "84",
        "1.6",
        "29.1%",
    ]
