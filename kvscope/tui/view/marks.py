"""What was noted on the steps of a recording: the detectors' findings and the user's bookmarks, on the time axis.

A finding stands where its pattern begins, as the statistics list it; a bookmark wins over a finding.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kvscope.analysis.finding import Finding
from kvscope.analysis.spans import Sentence, Tone, count, dim, say, strong
from kvscope.analysis.text import visible
from kvscope.replay.bookmarks import Bookmark
from kvscope.tui.view.events import EventKind
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import Line, Span


@dataclass(frozen=True, slots=True)
class Marks:
    """All of a recording, as far as they are known."""

    findings: Sequence[Finding] = ()
    """The gravest first."""
    bookmarks: Sequence[Bookmark] = ()
    """By step."""

    def steps(self, kinds: Collection[EventKind]) -> list[int]:
        """Returns the marked steps of these kinds, in order."""
        found = {finding.first_step for finding in self.findings if "finding" in kinds}
        return sorted(found | {mark.step for mark in self.bookmarks if "bookmark" in kinds})


NO_MARKS = Marks()


def noted_steps(marks: Marks, glyphs: Glyphs) -> list[tuple[int, str]]:
    """Returns every mark of the axis as its step and glyph; later ones win."""
    return [
        *((finding.first_step, glyphs.mark_finding) for finding in marks.findings),
        *((mark.step, glyphs.mark_bookmark) for mark in marks.bookmarks),
    ]


def counts_line(marks: Marks, glyphs: Glyphs) -> Line:
    """Returns the legend of the axis: each glyph with how many there are; empty where there is none."""
    spans: list[Span] = []
    for glyph, number in ((glyphs.mark_finding, len(marks.findings)), (glyphs.mark_bookmark, len(marks.bookmarks))):
        if number:
            spans += [Span(" ")] * bool(spans) + [Span(glyph, "strong"), Span(str(number), "text")]
    return tuple(spans)


def next_mark(marks: Marks, step: int, direction: int, kinds: Collection[EventKind]) -> int | None:
    """Returns the next marked step after (or before) a step, None where there is none."""
    steps = marks.steps(kinds)
    index = bisect_right(steps, step) if direction > 0 else bisect_left(steps, step) - 1
    return steps[index] if 0 <= index < len(steps) else None


GRAVE_TONES: frozenset[Tone] = frozenset({"failed", "stalled", "preempted", "refused"})
"""Of the decisions that a finding stands behind: where rows are few, what the step did comes before what it means."""


def among(told: Sequence[Sentence], decisions: Sequence[Sentence]) -> list[Sentence]:
    """Returns all sentences of a step in their order: its notes, the grave decisions, the finding, the others."""
    num_grave = next(
        (index for index, sentence in enumerate(decisions) if sentence.tone not in GRAVE_TONES), len(decisions)
    )
    notes = [sentence for sentence in told if sentence.tone == "bookmark"]
    findings = [sentence for sentence in told if sentence.tone != "bookmark"]
    return [*notes, *decisions[:num_grave], *findings, *decisions[num_grave:]]


def mark_sentences(marks: Marks, first_step: int, last_step: int, glyphs: Glyphs) -> list[Sentence]:
    """Returns what the marks of a column of the timeline say: the notes, then the gravest finding whole.

    The others are counted: the statistics list them all.
    """
    told: list[Sentence] = []
    for mark in marks.bookmarks:
        if first_step <= mark.step <= last_step:
            where = "" if mark.step == first_step == last_step else f" at step {mark.step}"
            note = [": ", visible(mark.note)] if mark.note else []
            told.append(Sentence(glyphs.mark_bookmark, "bookmark", say(strong(f"Bookmark{where}"), *note)))
    here = [finding for finding in marks.findings if first_step <= finding.first_step <= last_step]
    if here:
        more = dim(f"; {count(len(here) - 1, 'more finding')} here, see the statistics") if len(here) > 1 else ""
        told.append(Sentence(glyphs.mark_finding, "finding", (*here[0].sentence.spans, *say(more))))
    return told
