"""The lines of the place "recordings": where two of them part, what each decided there, and what it led to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvscope.analysis.comparison import FirstDifference, Pair, RequestPair
from kvscope.analysis.decision_words import MAX_NAMES, CountPair, count_pairs, decision_text, standing_text
from kvscope.analysis.divergence import Divergence
from kvscope.analysis.spans import Sentence, count, dim, say, strong, wrap
from kvscope.analysis.text import cell_width, visible
from kvscope.tui.view.entries import Entry, heading
from kvscope.tui.view.lines import Line, Span, Target, cut_line, fit, line_width, pad, sentence_line
from kvscope.tui.view.step import sentence_rows

Side = Literal["a", "b"]

DIFFERENT_WORDS = {
    "scheduled": "who got tokens",
    "drafts": "drafts",
    "preempted": "who was preempted",
    "admitted": "who was admitted",
    "resumed": "who resumed",
    "hits": "hits",
    "stop": "why admission ended",
}
"""The fields of a decision, as they are told."""

MAX_ID_CELLS = 20


@dataclass(frozen=True, slots=True)
class TwoRuns:
    """Two recordings and where they part."""

    found: Divergence
    sentences: tuple[Sequence[Sentence], Sequence[Sentence]]
    """Of the step in which they part, each with its own ids; empty where there is none."""
    num_steps: tuple[int, int]

    @property
    def difference(self) -> FirstDifference | None:
        return self.found.comparison.first_difference

    def first_named(self, side: Side) -> str:
        """Returns the request that the first sentence with one names, by the side's own id: what the step is about."""
        entities = (entity for said in self.sentences[0 if side == "a" else 1] for entity in said.entities)
        return next((str(entity.key) for entity in entities if entity.kind == "request"), "")

    @property
    def own_ids(self) -> dict[str, str]:
        """Each id of A to B's id of the same request."""
        return {ours: theirs for theirs, ours in self.found.matched.names.items()}


def runs_lines(runs: TwoRuns, names: tuple[str, str], width: int, height: int) -> list[Line]:
    """Returns which recordings they are, in which settings they differ, and where they part; three lines or four."""
    sides: list[Span] = []
    for label, chip, name, num_steps in zip("AB", ("chip-held", "chip-loading"), names, runs.num_steps, strict=True):
        room = (width - 2) // 2 - len(f" {label}   {count(num_steps, 'step')}  ")
        side = (
            Span(f" {label} ", "bold", chip),
            Span(f" {fit(name, room)}", "bold"),
            Span(f"  {count(num_steps, 'step')}", "dim"),
        )
        sides += [*side, Span(" " * max(width // 2 - line_width(side), 2))]
    matched = _matched_line(runs)
    is_low = height < 4
    room = width - 11 - (line_width(matched) + 2 if is_low else 0)
    settings: Line = (Span(" Settings: ", "dim"), Span(_setting_words(runs, room)))
    middle = [(*settings, Span("  "), *matched)] if is_low else [settings, matched]
    return [cut_line(line, width) for line in (tuple(sides), *middle, _part_line(runs))]


def _setting_words(runs: TwoRuns, room: int) -> str:
    parts = [
        f"{visible(name)} {visible(str(ours))} → {visible(str(theirs))}"
        for name, (ours, theirs) in runs.found.settings.items()
    ]
    return _listed(parts, room) or "the same"


def _matched_line(runs: TwoRuns) -> Line:
    matched = runs.found.matched
    apart = [
        f"{len(ids)} only in {label}" for label, ids in (("A", matched.only_in_a), ("B", matched.only_in_b)) if ids
    ]
    return (Span(f" Matched by {matched.by}{': ' if apart else ''}{', '.join(apart)}", "dim"),)


def _part_line(runs: TwoRuns) -> Line:
    difference = runs.difference
    if difference is None:
        return (Span(" No difference: every step decides the same.", "bold"),)
    head = (Span(" They part in "), Span(f"step {difference.step}", "bold bad"))
    if difference.base is None or difference.changed is None:
        label = "A" if difference.base is None else "B"
        return (*head, Span(f": {label} has ended, the other goes on"))
    return (*head, Span(f": {', '.join(DIFFERENT_WORDS[name] for name in difference.fields)}"))


def _listed(parts: Sequence[str], room: int) -> str:
    """Returns as many as have room, and how many more there are."""
    for shown in range(len(parts), 0, -1):
        more = f" and {len(parts) - shown} more" if shown < len(parts) else ""
        text = ", ".join(parts[:shown]) + more
        if cell_width(text) <= room:
            return text
    return parts[0] if len(parts) == 1 else f"{len(parts)} differ" if parts else ""


# --- what each decided ------------------------------------------------------------------------------------------------


def side_entries(runs: TwoRuns, side: Side, width: int) -> list[Entry]:
    """Returns what one of them decided, from which state, and the sentences of its step; each leads there."""
    difference = runs.difference
    if difference is None:
        return [heading((Span("   the same in every step", "dim"),))]
    is_a = side == "a"
    own, other = (difference.base, difference.changed) if is_a else (difference.changed, difference.base)
    target = Target(side, "")
    if own is None:
        last = runs.num_steps[0 if is_a else 1] - 1
        return [Entry(_told("ended", f"after step {last}", width), target)]
    # Requests that got the same in both are only counted: what differs is to be seen.
    decided = decision_text(own, difference.fields, other, max_names=0 if other is not None else MAX_NAMES)
    entries = [Entry(_told("decided", decided, width), target)]
    for sentence in runs.sentences[0 if is_a else 1]:
        request_id = next((str(entity.key) for entity in sentence.entities if entity.kind == "request"), "")
        entries.append(Entry(tuple(sentence_rows(sentence, width)), Target(side, request_id)))
    before = runs.found.before
    if before is not None:
        a, b = before
        has_same_queues = (a.running, a.waiting, a.arrived, a.aborted) == (b.running, b.waiting, b.arrived, b.aborted)
        words = "from the same state" if a == b else "from the same queues" if has_same_queues else "from"
        text = standing_text(a if is_a else b, has_names=not has_same_queues)
        entries += [heading(line) for line in _told(words, text, width)]
    return entries


def _told(word: str, text: str, width: int) -> tuple[Line, ...]:
    rows = wrap(say(strong(word), dim(": "), text), max(width - 3, 8))
    return tuple((Span(" " if index == 0 else "   "), *sentence_line(row)) for index, row in enumerate(rows))


# --- what it led to ---------------------------------------------------------------------------------------------------


def count_entries(runs: TwoRuns, width: int) -> list[Entry]:
    """Returns the counts of both runs, those that differ first, in columns as wide as their figures."""
    pairs = sorted(count_pairs(runs.found.comparison), key=lambda pair: pair.a == pair.b)
    cells = [("A", "B", "B−A"), *((f"{pair.a:,}", f"{pair.b:,}", _change(pair)) for pair in pairs)]
    widths = [max(cell_width(row[column]) for row in cells) + 2 for column in range(3)]
    room = width - 1 - sum(widths)
    head = "".join(cell.rjust(column) for cell, column in zip(cells[0], widths, strict=True))
    entries = [heading((Span(" " * (room + 1)), Span(head, "dim")))]
    for pair, (a, b, change) in zip(pairs, cells[1:], strict=True):
        role = "text" if pair.a != pair.b else "dim"
        entries.append(
            heading(
                (
                    Span(f" {pad(fit(_short(pair.name, room), room), room)}", role),
                    Span(f"{a:>{widths[0]}}{b:>{widths[1]}}", role),
                    Span(f"{change:>{widths[2]}}", "bold" if pair.a != pair.b else "dim"),
                )
            )
        )
    return entries


def _short(name: str, room: int) -> str:
    """Returns a count's name, in fewer words where it would not fit."""
    if cell_width(name) <= room:
        return name
    for long, short in (
        ("empty steps while something waits", "empty, some wait"),
        ("tokens computed twice", "computed twice"),
        ("steps ended by ", "by "),
    ):
        name = name.replace(long, short)
    return name


def _change(pair: CountPair) -> str:
    return "=" if pair.a == pair.b else f"{pair.b - pair.a:+,}".replace("-", "−")


def request_title(runs: TwoRuns) -> Line:
    """Returns how many requests fared otherwise."""
    pairs = runs.found.comparison.requests
    return (Span(f"{sum(pair.differs for pair in pairs)} of {len(pairs)} fare otherwise", "dim"),)


def request_entries(runs: TwoRuns, width: int) -> list[Entry]:
    """Returns what became of each request that fared otherwise, A → B; each leads to the step where it first shows."""
    differing = [pair for pair in runs.found.comparison.requests if pair.differs]
    if not differing:
        return [heading((Span("   every request fares the same", "dim"),))]
    id_width = min(max(cell_width(visible(pair.request_id)) for pair in differing), MAX_ID_CELLS, width // 2)
    return [_request_entry(pair, id_width, width) for pair in differing]


def _request_entry(pair: RequestPair, id_width: int, width: int) -> Entry:
    figures = (
        ("admitted", pair.first_admitted),
        ("first token", pair.first_token),
        ("finished", pair.finished),
        ("preempted", pair.num_preemptions),
        ("computed twice", pair.num_recomputed_tokens),
        ("hit", pair.num_hit_tokens),
        ("output", pair.num_output_tokens),
    )
    parts = [f"{name} {_arrow(figure)}" for name, figure in figures if figure.differs]
    if pair.num_output_tokens.base is None or pair.num_output_tokens.changed is None:
        parts = ["only in B" if pair.num_output_tokens.base is None else "only in A"]
    indent = id_width + 3
    lines: list[Line] = [(Span(f" {pad(fit(visible(pair.request_id), id_width), id_width)}  ", "bold"),)]
    used = indent
    for number, part in enumerate(parts):
        text = part + ("," if number < len(parts) - 1 else "")
        if used > indent and used + cell_width(text) > width:
            lines.append((Span(" " * indent),))
            used = indent
        lines[-1] = (*lines[-1], Span(f"{text} "))
        used += cell_width(text) + 1
    return Entry(tuple(cut_line(line, width) for line in lines), Target("pair", pair.request_id))


def _arrow(pair: Pair) -> str:
    ours, theirs = ("–" if value is None else f"{value:,}" for value in (pair.base, pair.changed))
    return f"{ours} → {theirs}"


def first_sight(pair: RequestPair, parting_step: int) -> tuple[Side, int]:
    """Returns the recording and the step in which it first shows that a request fared otherwise."""
    marks = (pair.first_admitted, pair.first_token, pair.finished)
    sides: tuple[tuple[Side, list[int]], ...] = (
        ("a", [mark.base for mark in marks if mark.differs and mark.base is not None]),
        ("b", [mark.changed for mark in marks if mark.differs and mark.changed is not None]),
    )
    for side, steps in sides:
        if steps:
            return side, min(steps)
    return "a", parting_step
