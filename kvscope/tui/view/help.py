"""The help: what each glyph means, then every key of the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.analysis.text import cell_width
from kvscope.tui.view.glyphs import Glyphs
from kvscope.tui.view.lines import Line, Span, line_width, pad

NAME_COLUMNS = 10
GAP_COLUMNS = 3
"""Between two columns of keys."""

GROUPS = ("time", "events", "engine", "prompt", "move", "look", "keep", "leave")


@dataclass(frozen=True, slots=True)
class KeyHelp:
    """Keys that do one thing."""

    group: str
    keys: str
    what: str


def legend(glyphs: Glyphs, width: int) -> list[Line]:
    """Returns the meaning of every glyph, in lines of `width` cells."""
    rows: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
        (
            "blocks",
            (
                (glyphs.live, "live", "live, one user"),
                ("2…9", "shared", "shared by so many"),
                (glyphs.cached, "cached", "free, still cached"),
                (glyphs.free, "free", "free"),
                (glyphs.null, "dim", "null block"),
            ),
        ),
        (
            "this step",
            (
                (glyphs.new, "new", "taken"),
                (glyphs.evicting, "evict", "taken, a cached block lost"),
                (glyphs.hit, "hit", "hit"),
                (glyphs.released, "released", "given back"),
            ),
        ),
        (
            "marks",
            (
                (glyphs.mark_preempted, "preempted", "preemption"),
                (glyphs.mark_stalled, "bad", "nothing scheduled"),
                (glyphs.mark_failed, "bad", "failed"),
                (f"{glyphs.mark_few_evicted} {glyphs.mark_evicted}", "evict", "few, many evictions"),
                (glyphs.mark_hit, "hit", "hit"),
                (glyphs.mark_finished, "text", "finished"),
                (glyphs.mark_finding, "strong", "finding"),
                (glyphs.mark_bookmark, "strong", "bookmark"),
                ("A", "reversed", "step A"),
            ),
        ),
        (
            "life",
            (
                (glyphs.life_waits, "dim", "waits"),
                (glyphs.life_prefill, "prefill", "prefill"),
                (glyphs.life_decode, "decode", "decode"),
                (glyphs.life_nothing, "bad", "runs, got nothing"),
                (glyphs.mark_aborted, "bad", "aborted"),
            ),
        ),
        (
            "tokens",
            (
                (glyphs.bar_prefill, "prefill", "prefill"),
                (glyphs.bar_decode, "decode", "decode"),
                (glyphs.bar_draft, "draft", "draft"),
                ("↳", "dim", "behind the head"),
                ("wm", "dim", "watermark"),
            ),
        ),
    )
    lines: list[Line] = []
    for name, entries in rows:
        line: list[Span] = [Span(pad(name, NAME_COLUMNS), "bold")]
        for glyph, role, meaning in entries:
            entry = (Span(glyph, role), Span(f" {meaning}   ", "dim"))
            if line_width([*line, *entry]) - 3 > width:
                lines.append(_without_end(line))
                line = [Span(" " * NAME_COLUMNS)]
            line += entry
        lines.append(_without_end(line))
    return lines


def _without_end(line: Sequence[Span]) -> Line:
    """Returns the line without the blanks behind its last word."""
    return (*line[:-1], line[-1]._replace(text=line[-1].text.rstrip()))


def help_lines(glyphs: Glyphs, keys: Sequence[KeyHelp], width: int) -> list[Line]:
    """Returns legend and keys, the keys in two columns where the width allows."""
    cells: list[Line] = []
    key_width = max((cell_width(key.keys) for key in keys), default=0) + 2
    for group in GROUPS:
        members = [key for key in keys if key.group == group]
        if members:
            cells.append((Span(group, "bold dim"),))
            cells += [(Span(f" {pad(key.keys, key_width)}", "bold"), Span(key.what, "text")) for key in members]
    column = max((sum(cell_width(span.text) for span in cell) for cell in cells), default=0) + GAP_COLUMNS
    num_columns = 2 if 2 * column - GAP_COLUMNS <= width else 1
    height = -(-len(cells) // num_columns)
    lines = [*legend(glyphs, width), ()]
    for row in range(height):
        line: list[Span] = []
        for cell in cells[row::height]:
            if line:
                line.append(Span(" " * (column - line_width(line))))
            line += cell
        lines.append(tuple(line))
    return lines
