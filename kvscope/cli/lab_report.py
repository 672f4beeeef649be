"""Labs as text of 80 columns and as JSON: the claim, counts and times apart, what became of it, where to look."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvscope.analysis.text import cell_width, fit, visible
from kvscope.cli.plain_table import number, share, table, wrapped
from kvscope.session.labs.figures import Figure
from kvscope.session.labs.lab import Lab
from kvscope.session.labs.run import LabRun, Outcome, Tested

_MARKS: dict[Outcome, str] = {"borne out": "✓", "not borne out": "✗", "undecided": "?"}
_NO_FOLDER = "FOLDER"


# --- the list ---------------------------------------------------------------------------------------------------------


def list_text(labs: Sequence[Lab]) -> list[str]:
    """Returns the labs with their claims, in lines."""
    lines = ["Each lab runs a workload under several settings and holds a claim against what", "comes out.", ""]
    for lab in labs:
        lines += [lab.name, *wrapped(lab.claim)]
    return [*lines, "", "kvscope lab NAME runs one, in about a minute or less on two cores."]


def list_json(labs: Sequence[Lab]) -> str:
    """Returns the labs as one JSON array."""
    return json.dumps([_lab_json(lab) for lab in labs], ensure_ascii=False)


def _lab_json(lab: Lab) -> dict[str, Any]:
    return {
        "lab": lab.name,
        "title": lab.title,
        "claim": lab.claim,
        "source": lab.source,
        "workload": lab.workload,
        "variants": {variant.name: {**lab.settings, **variant.settings} for variant in lab.variants},
    }


# --- a run as text ----------------------------------------------------------------------------------------------------


def as_text(found: LabRun, folder: Path | None) -> list[str]:
    """Returns the whole report in lines; `folder` is where the recordings stay, None where they do not."""
    lab = found.lab
    lines = wrapped(lab.title.upper(), first="", rest="")
    lines += ["", *_paragraph("claim", f"{lab.claim} ({lab.source})")]
    lines += _paragraph("workload", lab.workload)
    lines += _paragraph("run", _run_text(found))
    counts = [figure for figure in lab.figures if figure.is_exact]
    times = [figure for figure in lab.figures if not figure.is_exact]
    if counts:
        lines += ["", "Counts, exact", *_table(found, counts), *_legend(counts)]
    if times:
        lines += ["", _times_head(found.num_rounds)]
        lines += [*_table(found, times), *_legend(times)]
    lines += ["", *_tested_text(found.tested())]
    for note in lab.notes:
        lines += wrapped(note)
    return [*lines, "", *_look_text(lab, folder)]


def _paragraph(head: str, text: str) -> list[str]:
    return wrapped(text, first=f"{head:<10}", rest=" " * 10)


def _run_text(found: LabRun) -> str:
    times = "once" if found.num_rounds == 1 else f"{found.num_rounds} times in turn"
    threads = "1 thread" if found.num_threads == 1 else f"{found.num_threads} threads"
    return f"{visible(found.model)} on {found.device}, {threads}; each variant {times}"


def _times_head(num_rounds: int) -> str:
    if num_rounds == 1:
        return "Times of a single run"
    return f"Times, the median of {num_rounds}, below it the smallest and the largest"


def _table(found: LabRun, figures: Sequence[Figure]) -> list[str]:
    """Returns a row for each variant; a second one with the range where a figure differs between the rounds."""
    rows: list[list[str]] = []
    for variant in found.lab.variants:
        cells = [figure_text(figure, found.median(variant.name, figure.key)) for figure in figures]
        rows.append([variant.name, *cells])
        ranges = [_range(figure, found.values(variant.name, figure.key)) for figure in figures]
        if any(ranges):
            rows.append(["", *ranges])
    return table(["", *(figure.head for figure in figures)], rows)


def _range(figure: Figure, values: Sequence[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known or known[0] == known[-1]:
        return ""
    return f"{figure_text(figure, known[0])}–{figure_text(figure, known[-1])}"


def figure_text(figure: Figure, value: float | None) -> str:
    """Returns a figure as the table has it: times with about three digits."""
    if value is None or figure.unit == "count":
        return number(value)
    if figure.unit == "share":
        return share(value)
    digits = 0 if value >= 100 else 1 if value >= 1 else 3
    return f"{value:,.{digits}f}"


def _legend(figures: Sequence[Figure]) -> list[str]:
    width = max(cell_width(figure.head) for figure in figures)
    return [
        line
        for figure in figures
        for line in wrapped(figure.meaning, first=f"    {fit(figure.head, width)}  ", rest=" " * (width + 6))
    ]


def _tested_text(tested: Sequence[Tested]) -> list[str]:
    lines = [_conclusion(tested)]
    for one in tested:
        lines += wrapped(
            f"{one.expectation.sentence} {_outcome_text(one)}", first=f"  {_MARKS[one.outcome]} ", rest="    "
        )
    return lines


def _conclusion(tested: Sequence[Tested]) -> str:
    num_borne_out = sum(one.outcome == "borne out" for one in tested)
    if num_borne_out == len(tested):
        return "The claim is borne out here:"
    if not num_borne_out:
        return "The claim is not borne out here:"
    return f"The claim is borne out here in {num_borne_out} of {len(tested)} points:"


def _outcome_text(one: Tested) -> str:
    if one.outcome == "borne out":
        return "Yes."
    if one.outcome == "not borne out":
        return "Not here."
    return f"Undecided: so in {one.num_held} of {one.num_rounds} rounds."


def _look_text(lab: Lab, folder: Path | None) -> list[str]:
    recording = f"{visible(str(folder)) if folder is not None else _NO_FOLDER}/{lab.look_at}-1.db"
    if folder is None:
        head = [
            f"Look: --keep {_NO_FOLDER} keeps the recordings, then",
            f"  kvscope replay {_NO_FOLDER}/{lab.name}/{lab.look_at}-1.db",
        ]
    else:
        head = ["Look:", f"  kvscope replay {recording}"]
    width = max(cell_width(look.keys) for look in lab.look)
    lines = [
        line
        for look in lab.look
        for line in wrapped(look.what, first=f"  {fit(look.keys, width)}  ", rest=" " * (width + 4))
    ]
    return head + lines


# --- a run as JSON ----------------------------------------------------------------------------------------------------


def as_json(found: LabRun, folder: Path | None) -> dict[str, Any]:
    """Returns everything, with the figures of every round; recordings that do not stay are null."""
    described = _lab_json(found.lab)
    settings = described.pop("variants")
    return described | {
        "model": found.model,
        "device": found.device,
        "num_threads": found.num_threads,
        "num_rounds": found.num_rounds,
        "exact_figures": [figure.key for figure in found.lab.figures if figure.is_exact],
        "figures": {figure.key: figure.meaning for figure in found.lab.figures},
        "variants": [
            {
                "variant": variant.name,
                "settings": settings[variant.name],
                "rounds": [
                    {"recording": str(run.recording) if folder is not None else None, **run.values}
                    for run in found.runs[variant.name]
                ],
            }
            for variant in found.lab.variants
        ],
        "expectations": [
            {
                "sentence": one.expectation.sentence,
                "figure": one.expectation.figure,
                "left": one.expectation.left,
                "relation": one.expectation.relation,
                "right": one.expectation.right,
                "num_held": one.num_held,
                "outcome": one.outcome,
            }
            for one in found.tested()
        ],
        "look": [{"keys": look.keys, "what": look.what} for look in found.lab.look],
    }
