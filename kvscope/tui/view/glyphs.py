"""The glyphs of the screen, one meaning one glyph, in Unicode and in ASCII.

The Unicode set stays within what DejaVu Sans Mono draws in one cell. In ASCII mode `to_ascii` replaces what is left
(rules, ellipses, arrows in sentences) where the lines are painted, one cell by one cell.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.analysis.pool_view import BlockChange


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Glyphs:
    """Which character stands for what. A set is known by its identity, so that it is a quick key for what it drew."""

    live: str = "■"
    cached: str = "░"
    free: str = "·"
    null: str = "∅"
    shared_many: str = "*"
    """A block with more than nine users; up to nine it is their number."""
    new: str = "+"
    evicting: str = "◆"
    hit: str = "●"
    released: str = "−"
    mark_preempted: str = "▲"
    mark_stalled: str = "!"
    mark_failed: str = "✖"
    mark_evicted: str = "◆"
    mark_few_evicted: str = "◇"
    mark_hit: str = "●"
    mark_finished: str = "✓"
    mark_aborted: str = "×"
    mark_finding: str = "§"
    mark_bookmark: str = "⚑"
    life_waits: str = "┄"
    life_prefill: str = "▓"
    life_decode: str = "━"
    life_nothing: str = "╌"
    draft: str = "≈"
    passed: str = "✓"
    """A test that was passed, a request that fits."""
    selected: str = "▸"
    eighths: str = " ▁▂▃▄▅▆▇█"
    """Bars by eighths of a cell, from none to all; without them a bar is made of whole cells of its layer's fill."""
    bar_prefill: str = "█"
    bar_decode: str = "█"
    bar_draft: str = "█"
    bar_live: str = "█"
    bar_cached: str = "░"

    @property
    def has_eighths(self) -> bool:
        return len(self.eighths) == 9

    def change(self, change: BlockChange) -> str:
        """Returns the glyph of what happened to a block in the step; a blank for nothing."""
        return (" ", self.new, self.evicting, self.hit, self.released)[change]


UNICODE = Glyphs()

NO_COLOR = Glyphs(eighths=" ", bar_prefill="▒", bar_draft="·", bar_cached="░")
"""Without colours the layers of a bar are told apart by their fills, cell by cell; the gutter has the exact figures."""

ASCII = Glyphs(
    live="#",
    cached="%",
    free=".",
    null="0",
    evicting="x",
    hit="o",
    released="-",
    mark_preempted="P",
    mark_failed="X",
    mark_evicted="E",
    mark_few_evicted="e",
    mark_hit="H",
    mark_finished="F",
    mark_aborted="x",
    mark_finding="@",
    mark_bookmark="B",
    life_waits=".",
    life_prefill="#",
    life_decode="=",
    life_nothing="_",
    draft="~",
    passed="y",
    selected=">",
    eighths=" ",
    bar_prefill="#",
    bar_decode="=",
    bar_draft="~",
    bar_live="#",
    bar_cached="%",
)

_TO_ASCII = str.maketrans(
    "■░·∅◆◇●−▲✗✖✓↓→←↳▸≈▓━┄╌─│╵…×—“”≤↷‖◀○⏎⇥␛±≠›█▒",
    '#%.0xeo-P!XFv><^>~#=._-|\'~x-""<>=<o/>^+!>##',
)


def to_ascii(text: str) -> str:
    """Replaces the screen's glyphs by ASCII ones of the same width; other characters of the data stay."""
    return text if text.isascii() else text.translate(_TO_ASCII)
